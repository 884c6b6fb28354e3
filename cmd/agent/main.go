// Command agent is the dispatch shim: the program that an external dispatcher starts
// for an agent, with the name and the arguments that dispatchers expect.
//
//	agent run ID                            process the inbox of an agent
//	agent deliver --thread P --consumer C   send the replies of a conversation
//	agent init ID                           in the sandbox of an agent that may create
//	                                        agents: ask the owner for one
//	agent ...                               anything else is a command of agentctl
//
// It calls the resident runner or deliverer and waits until everything that existed
// at the call is processed; it processes nothing itself. Its environment is that of
// the daemon that started it: it finds the services by THECLAW_HOME or in ~/.theclaw.
// However it ends, it removes the lock that the dispatcher left for it, and then
// calls once more: what was pushed before the removal was not dispatched.
//
// It is started for each message, so it links a client and nothing more.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/handlerlock"
	"github.com/theclaw/agents/internal/rpc"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// version is set by the linker.
var version = "devel"

// batchTime is how long a batch may take: turns think for minutes.
const batchTime = 10 * time.Minute

// help is what both commands of this program answer to --help.
const help = `usage:
  agent run ID                                      process the inbox of an agent
  agent deliver --thread PATH --consumer outbound   send the replies of a conversation

Both are for a dispatcher. Every other command is one of agentctl: 'agentctl --help'.
Exit codes: 0 success, 1 failure, 2 invalid command line.
`

// The consumers that agents handle: of an inbox, and of a conversation.
const (
	inbox    = "inbox"
	outbound = "outbound"
)

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. It does not return when agentctl takes over.
func Main(args []string, _ io.Reader, out, errs io.Writer, getenv func(string) string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, args, out, getenv)
	if err != nil {
		fmt.Fprintln(errs, fault.Line(err))
	}
	return fault.ExitCode(err)
}

func run(ctx context.Context, args []string, out io.Writer, getenv func(string) string) error {
	if len(args) == 0 {
		return fault.Usage("no command given to 'agent'", "use 'agent run ID' or 'agent deliver --thread PATH --consumer outbound'; everything else is in 'agentctl --help'")
	}
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	switch args[0] {
	case "run", "deliver":
		if slices.Contains(args[1:], "--help") || slices.Contains(args[1:], "-h") {
			fmt.Fprint(out, help)
			return nil
		}
		if args[0] == "run" {
			return runBatch(ctx, args[1:], out, getenv)
		}
		return deliverBatch(ctx, args[1:], getenv)
	case "init":
		if socket := getenv(broker.Variable); socket != "" {
			return create(ctx, args[1:], socket, out)
		}
	case "--version":
		fmt.Fprintln(out, version)
		return nil
	}
	return become(args)
}

func runBatch(ctx context.Context, args []string, out io.Writer, getenv func(string) string) error {
	const fix = "use 'agent run ID'"
	switch {
	case len(args) == 0:
		return fault.Usage("the argument ID is missing", fix)
	case strings.HasPrefix(args[0], "-"):
		return fault.Usage(fmt.Sprintf("unknown flag: %.80s", args[0]), fix)
	case len(args) > 1:
		return fault.Usage(fmt.Sprintf("%.80q is too many", args[1]), fix)
	}
	id := args[0]
	if err := layout.ValidID(id); err != nil {
		e := fault.From(err)
		return fault.Usage(e.What, e.Fix)
	}
	path, err := layout.DefaultHome(getenv)
	if err != nil {
		return err
	}
	home := layout.At(path)
	cc, err := dial(home, "runner", runner.RunnerService_RunBatch_FullMethodName)
	if err != nil {
		return err
	}
	defer cc.Close()
	dir := filepath.Join(home.AgentDir(id), inbox)
	lock := handlerlock.Hold(dir, inbox)
	var processed int64
	batch := func() error {
		r, err := runner.NewRunnerServiceClient(cc).RunBatch(ctx, &runner.RunBatchRequest{AgentId: id})
		processed += r.GetProcessed()
		if at := r.GetInboxPath(); lock == nil && at != "" && at != dir { // a setting moved it
			dir, lock = at, handlerlock.Hold(at, inbox)
		}
		return away(err, cc)
	}
	err = handle(&lock, batch)
	if processed > 0 {
		fmt.Fprintf(out, "Agent '%s' processed %d message(s)\n", id, processed)
	}
	return err
}

// handle works, removes the dispatcher's lock, and works again when there was one:
// an event that was pushed while it stood was skipped by its dispatch. One that
// comes later is dispatched by itself.
func handle(lock **handlerlock.Lock, work func() error) error {
	err := work()
	if *lock == nil {
		return err
	}
	(*lock).Release()
	*lock = nil
	if err != nil {
		return err
	}
	return work()
}

func deliverBatch(ctx context.Context, args []string, getenv func(string) string) error {
	const fix = "use 'agent deliver --thread PATH --consumer outbound'"
	var path, consumer string
	f := flag.NewFlagSet("deliver", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&path, "thread", "", "")
	f.StringVar(&consumer, "consumer", "", "")
	switch err := f.Parse(args); {
	case err != nil:
		return fault.Usage(err.Error(), fix)
	case f.NArg() > 0:
		return fault.Usage(fmt.Sprintf("%.80q is too many", f.Arg(0)), fix)
	case path == "":
		return fault.Usage("--thread is missing", fix)
	case consumer == "":
		return fault.Usage("--consumer is missing", fix)
	}
	if consumer != outbound {
		return fault.New(codes.InvalidArgument, fault.ConsumerNotFound, fmt.Sprintf("consumer %.80q is not delivered by agents", consumer), fix)
	}
	root, err := layout.DefaultHome(getenv)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("resolve thread: %w", err)
	}
	id, threadID, err := layout.ResolveThread(root, path)
	if err != nil {
		return err
	}
	if threadID == inbox {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.200q is an inbox, which has no replies", path), fix)
	}
	home := layout.At(root)
	cc, err := dial(home, "deliverer", deliverer.DelivererService_DeliverBatch_FullMethodName)
	if err != nil {
		return err
	}
	defer cc.Close()
	lock := handlerlock.Hold(filepath.Join(home.AgentDir(id), filepath.FromSlash(threadID)), outbound)
	return handle(&lock, func() error {
		_, err := deliverer.NewDelivererServiceClient(cc).DeliverBatch(ctx, &deliverer.DeliverBatchRequest{AgentId: id, ThreadId: threadID})
		return away(err, cc)
	})
}

// dial connects to a service of the home. Its one call may be repeated when the
// service is away for a moment: a batch that runs is joined.
func dial(home layout.Home, service, method string) (*grpc.ClientConn, error) {
	socket, err := home.Socket(service)
	if err != nil {
		return nil, err
	}
	return rpc.Dial("unix://"+socket, rpc.DialOptions{TokenPath: home.TokenFile(), Safe: []string{method}, UserAgent: "agent/" + version})
}

// away says who does not answer; the transport's words would not.
func away(err error, cc *grpc.ClientConn) error {
	if err == nil {
		return nil
	}
	if e := fault.From(err); e.Code == codes.Unavailable && e.Reason == fault.ServiceUnavailable {
		return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable,
			"nobody answers at "+cc.Target(), "start the services with 'agentd all'"), err)
	}
	return err
}

// become replaces this process by agentctl with the same words; the one beside
// this program goes first. By the name agentctl knows that it stands for this program.
func become(args []string) error {
	program := ""
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "agentctl")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			program = beside
		}
	}
	if program == "" {
		path, err := exec.LookPath("agentctl")
		if err != nil {
			return fault.Wrap(fault.New(codes.NotFound, fault.ServiceUnavailable,
				fmt.Sprintf("'agent' has no command %q, and there is no agentctl next to it or on the PATH", args[0]), "run 'make install'"), err)
		}
		program = path
	}
	err := syscall.Exec(program, append([]string{"agent"}, args...), os.Environ()) //nolint:gosec // handing on our own words is the job
	return fmt.Errorf("start %s: %w", program, err)
}
