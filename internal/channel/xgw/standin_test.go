package xgw

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/sandbox"
)

// TestMain is the stand-in for the program when it is started under its name:
// the environment is an allow-list, so argv[0] is the only way to tell.
func TestMain(m *testing.M) {
	sandbox.Main()
	if filepath.Base(os.Args[0]) == "xgw" {
		os.Exit(standIn(os.Getenv("HOME"), os.Args[1:]))
	}
	goleak.VerifyTestMain(opened{m})
}

// opened runs the tests and closes the box that they share.
type opened struct{ *testing.M }

func (o opened) Run() int {
	code := o.M.Run()
	if s, err := box(); err == nil {
		s.Close()
	}
	return code
}

// box is opened once: it starts a program to see that it works.
var box = sync.OnceValues(func() (*sandbox.Sandbox, error) {
	return sandbox.New(context.Background(), sandbox.Options{Mode: sandbox.Off})
})

// runHere is how the deliverer runs programs.
func runHere(ctx context.Context, p channel.Program) (channel.ProgramEnd, error) {
	s, err := box()
	if err != nil {
		return channel.ProgramEnd{}, err
	}
	r, err := s.Run(ctx, sandbox.Trusted(p.Argv, p.Env, p.Stdin, p.Within, p.Stdout, p.Stderr))
	return channel.ProgramEnd{Exit: r.ExitCode, Signal: r.Signal, Stopped: r.TimedOut || r.Canceled}, err
}

// call is what the stand-in saw.
type call struct {
	Args  []string
	Env   []string
	Stdin string
}

// standIn behaves as the recorded program did, after a script in home: the
// line for its n-th call, or the last one, says how.
func standIn(home string, args []string) int {
	script, err := os.ReadFile(filepath.Join(home, "script"))
	if err != nil {
		return 99
	}
	if slices.Equal(args, []string{"child"}) {
		syscall.Pause() // holds the descriptors it inherited until it is killed
	}
	stdin, _ := io.ReadAll(os.Stdin)
	log, err := os.OpenFile(filepath.Join(home, "calls"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 99
	}
	before, _ := io.ReadAll(log)
	n := strings.Count(string(before), "\n")
	if err := json.NewEncoder(log).Encode(call{args, os.Environ(), string(stdin)}); err != nil {
		return 99
	}
	lines := strings.Split(string(script), "\n")
	mode, arg, _ := strings.Cut(lines[min(n, len(lines)-1)], " ")
	tell := func(to io.Writer, name string) {
		data, err := os.ReadFile(filepath.Join(home, "testdata", name))
		if err != nil {
			panic(err)
		}
		to.Write(data)
	}
	switch mode {
	case "ok":
		tell(os.Stdout, "31-stub-send-ok-json.stdout")
	case "noisy": // a plugin prints lines of its own
		os.Stdout.WriteString("{\"level\":\"info\"}\nconnecting {\n")
		tell(os.Stdout, "31-stub-send-ok-json.stdout")
		os.Stdout.WriteString("closing\n")
		return 1
	case "ok1": // as 1.0.9 does when it cannot close its channel
		tell(os.Stdout, "31-stub-send-ok-json.stdout")
		return 1
	case "okkill":
		tell(os.Stdout, "31-stub-send-ok-json.stdout")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "okhang":
		tell(os.Stdout, "31-stub-send-ok-json.stdout")
		syscall.Pause()
	case "failhang":
		tell(os.Stdout, "34-stub-send-fail-json.stdout")
		syscall.Pause()
	case "quiet":
	case "fail":
		tell(os.Stdout, "34-stub-send-fail-json.stdout")
		tell(os.Stderr, "34-stub-send-fail-json.stderr")
		return 1
	case "lie": // exit 0 and success false
		tell(os.Stdout, "34-stub-send-fail-json.stdout")
	case "crash":
		tell(os.Stderr, "16-send-daemon-running-json.stderr")
		return 1
	case "noconfig":
		tell(os.Stderr, "01-send-noconfig.stderr")
		return 1
	case "usage":
		os.Stderr.WriteString("error: required option '" + arg + " <id>' not specified\n")
		return 1
	case "help":
		os.Stdout.WriteString("Usage: xgw send [options]\n\nOptions:\n  --channel <id>\n  " + arg + " <id>  id\n")
	case "exit127":
		os.Stderr.WriteString("env: node: No such file or directory\n")
		return 127
	case "flood":
		for range 64 {
			os.Stdout.Write(make([]byte, 16<<10))
		}
	case "hang":
		fifo, err := os.OpenFile(filepath.Join(home, "fifo"), os.O_WRONLY, 0)
		if err != nil {
			return 99
		}
		_, err = os.StartProcess(os.Args[0], []string{os.Args[0], "child"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr, fifo}})
		if err != nil {
			return 99
		}
		fifo.WriteString("ready")
		syscall.Pause()
	}
	return 0
}

// install puts the stand-in on a PATH and returns the home it works in.
func install(t *testing.T, script ...string) (home string, env []string) {
	t.Helper()
	home = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{self: "xgw", data: "testdata"} {
		if err := os.Symlink(from, filepath.Join(home, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "script"), []byte(strings.Join(script, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return home, []string{"PATH=relative:/nonexistent:" + home, "HOME=" + home, "XGW_CONFIG=/c.yaml", "OPENAI_API_KEY=canary"}
}

func calls(t *testing.T, home string) []call {
	t.Helper()
	f, err := os.Open(filepath.Join(home, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []call
	for d := json.NewDecoder(f); d.More(); {
		var c call
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func message(text string) channel.Message {
	rc := channel.ReplyContext{}
	for key, value := range map[string]string{"channel_id": "tui-main", "peer_id": "-alice; rm", "session_id": "s'1\""} {
		rc[key], _ = json.Marshal(value)
	}
	return channel.Message{
		AgentID: "amy", Key: "k1", Attempt: 2, MaybeDuplicate: true, Text: text, ReplyContext: rc,
		Fence: channel.Fence{Resource: "deliver/amy", Token: 42},
	}
}

func failure(t *testing.T, err error, want channel.Class) *channel.Error {
	t.Helper()
	e := channel.AsError(err)
	if e == nil || e.Class != want {
		t.Fatalf("%+v, want %v", err, want)
	}
	return e
}

func sendArgs(flag string) []string {
	return []string{"send", "--channel", "tui-main", "--peer", "-alice; rm", flag, "s'1\"", "--json"}
}
