// Package command contains what the commands of agentctl and thread share: the streams,
// the global flags, the connections to the services, the checks of arguments and the way
// errors are printed.
//
// It promises that an invalid command line is exit code 2, also when a service finds that
// out, and every other failure is 1;
// that an error is one line on standard error, or with --json one object on standard
// output and nothing else there; that a command line is validated before any service is
// called; and that no connection is made before the first call.
//
// It knows no command. Tables and colors are in package screen.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/envfile"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/runs"
)

// Env is what a command works with. main makes one for each command line; it
// belongs to that command line and is closed at its end.
type Env struct {
	In      io.Reader
	Out     io.Writer // data only; the first failed write is kept, see [Env.Close]
	Err     io.Writer // everything else
	Getenv  func(string) string
	Version string

	Flags Flags
	// Impatient commands do not wait for a service that may be starting: that
	// it is away is what they want to know.
	Impatient bool
	// Older commands were started as the program agent: what they print has the form of the
	// older tool of this name.
	Older bool
	// TextErrors programs report an error as a line of text with --json too.
	TextErrors bool

	stdin, stdout, stderr any // as given to New: a terminal is recognised there
	written               *sink
	mu                    sync.Mutex // of conns and runs: commands work on several agents at once
	conns                 map[string]*conn
	runs                  *runs.Client // nil until a runner is asked
}

// Flags are the flags that every command takes.
type Flags struct {
	Home                                 string // empty: THECLAW_HOME, else ~/.theclaw
	Profile                              string // empty: THECLAW_PROFILE, else none
	Registry, Runner, Deliverer, Gateway string // empty: the service's socket in the home
	TLS                                  string // directory of certificates; empty: tls/ in the home
	Timeout                              time.Duration
	JSON, NoColor                        bool
	Output                               Choice // of [Outputs]; json is the same as JSON
}

// DefaultTimeout bounds one call to a service unless --timeout says otherwise.
const DefaultTimeout = 10 * time.Second

// New makes an Env. in, out and errs are recognized as terminals when they are
// files.
func New(in io.Reader, out, errs io.Writer, getenv func(string) string, version string) *Env {
	written := &sink{w: out}
	return &Env{
		In: in, Out: written, Err: errs, Getenv: getenv, Version: version,
		Flags: Flags{Timeout: DefaultTimeout, Output: Choice{Value: OutputTable, Values: Outputs, Kind: "form"}}, stdin: in, stdout: out, stderr: errs,
		written: written, conns: map[string]*conn{},
	}
}

// Close closes the connections and answers the first failed write to standard
// output: a full disk behind a redirection must not look like success.
func (e *Env) Close() error {
	if e.runs != nil {
		e.runs.Close()
	}
	for _, c := range e.conns {
		c.close()
	}
	if e.written.err != nil {
		return fmt.Errorf("write the output: %w", e.written.err)
	}
	return nil
}

type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// Home is the home directory that the flags and the environment name.
func (e *Env) Home() (layout.Home, error) {
	path, err := layout.ChosenHome(e.Flags.Home, e.Flags.Profile, e.Getenv)
	if err != nil {
		return layout.Home{}, err
	}
	return layout.At(path), nil
}

// HomeVariables are the variables of the environment that name the home and its profile to
// another program.
func (e *Env) HomeVariables() ([]string, error) {
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	profile := cmp.Or(e.Flags.Profile, e.Getenv("THECLAW_PROFILE"))
	if profile == "" {
		return []string{"THECLAW_HOME=" + home.Path()}, nil
	}
	return []string{"THECLAW_HOME=" + strings.TrimSuffix(home.Path(), "-"+profile), "THECLAW_PROFILE=" + profile}, nil
}

// Secrets returns the environment with the variables of the home's file .env, for references
// to secrets.
func (e *Env) Secrets() (func(string) string, error) {
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	vars, err := envfile.Read(home.EnvFile())
	return vars.Getenv(e.Getenv), err
}

// Terminal answers the terminal to draw on, or nil unless standard input and
// output both are one.
func (e *Env) Terminal() (in, out *os.File) {
	in, ok1 := e.stdin.(*os.File)
	out, ok2 := e.stdout.(*os.File)
	if !ok1 || !ok2 || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, nil
	}
	return in, out
}

// Typed reports whether standard input is a terminal.
func (e *Env) Typed() bool {
	in, ok := e.stdin.(*os.File)
	return ok && term.IsTerminal(int(in.Fd()))
}

// Width is the width of the terminal on standard output in columns; 0 when it
// is not a terminal.
func (e *Env) Width() int {
	f, ok := e.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// ErrIsTerminal reports whether progress may be drawn on standard error.
func (e *Env) ErrIsTerminal() bool {
	f, ok := e.stderr.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && e.Getenv("TERM") != "dumb"
}

// Color reports whether standard output may have colors.
func (e *Env) Color() bool {
	return e.Width() > 0 && !e.Flags.NoColor && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

// Note writes one line for the person on standard error; with --json nothing.
func (e *Env) Note(format string, args ...any) {
	if !e.Flags.JSON {
		fmt.Fprintf(e.Err, format+"\n", args...)
	}
}

// Report shows err as the contract says and answers the exit code.
func (e *Env) Report(err error) int {
	var said *ReportedError
	switch code := exitCode(err); {
	case err == nil:
		return 0
	case errors.As(err, &said):
		return code
	case e.Flags.JSON && !e.TextErrors:
		fmt.Fprintf(e.Out, "%s\n", fault.JSON(brief(err)))
		return code
	default:
		fmt.Fprintln(e.Err, fault.Line(err))
		return code
	}
}

// arguments are the reasons with which a service refuses what the command line named.
var arguments = map[string]bool{
	fault.WrongUsage: true, fault.InvalidArgument: true, fault.FilterInvalid: true, fault.ConfigInvalid: true,
	fault.BindingInvalid: true, fault.SessionKeyInvalid: true,
}

// exitCode is 2 for a command line that is wrong, whether this program or a service found
// it out, and 1 for every other failure.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e := fault.From(err); e.Code == codes.InvalidArgument && arguments[e.Reason] {
		return 2
	}
	return fault.ExitCode(err)
}

// Data makes err the failure of what was read from a file or from standard input: the
// command line is right, and the exit code is 1.
func Data(err error) error {
	e := fault.From(err)
	if err == nil || e.Code != codes.InvalidArgument {
		return err
	}
	e = fault.Wrap(e, err)
	e.Code = codes.FailedPrecondition
	return e
}

// ReportedError is a failure that was already printed: only the exit code 1
// is left to give.
type ReportedError struct{}

func (*ReportedError) Error() string { return "failed" }

// brief leaves the directory out of "not found" for programs, as the older tool
// did; the line for people has it.
func brief(err error) error {
	e := fault.From(err)
	dir := e.Meta["dir"]
	if e.Reason != fault.AgentNotFound || dir == "" {
		return err
	}
	c := *e
	c.What = strings.TrimSuffix(c.What, " at "+dir)
	return &c
}
