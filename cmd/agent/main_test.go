package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

var errorLine = regexp.MustCompile(`^Error: [^\n]+ - [^\n]+\n$`)

// home is a home directory whose sockets have short enough paths.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "claw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func call(home string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = Main(args, nil, &o, &e, func(name string) string { return map[string]string{"THECLAW_HOME": home}[name] })
	return code, o.String(), e.String()
}

// S0-12, S0-13, S0-136, S0-137: the words of the shim and its exit codes.
func TestWrongCommandLines(t *testing.T) {
	h := home(t)
	thread := filepath.Join(h, "agents", "a1", "threads", "main")
	for line, want := range map[string]int{
		"": 2, "run": 2, "run ../x": 2, "run A": 2, "run a1 b": 2, "run --x": 2, "run a1 --x": 2,
		"deliver": 2, "deliver --thread " + thread: 2, "deliver --consumer outbound": 2, "deliver --x": 2, "deliver --thread": 2,
		"deliver --thread " + thread + " --consumer outbound more": 2,
		// From here on the command line is right and what it names is not.
		"deliver --thread " + thread + " --consumer inbox":                   1,
		"deliver --thread /elsewhere/threads/main --consumer outbound":       1,
		"deliver --thread " + h + "/agents/../../x --consumer outbound":      1,
		"deliver --thread " + h + "/agents/a1/workdir/x --consumer outbound": 1,
		"deliver --thread " + h + "/agents/a1/inbox --consumer outbound":     1,
		"run a1": 1, "deliver --thread " + thread + " --consumer outbound": 1,
	} {
		code, out, errs := call(h, strings.Fields(line)...)
		if code != want || out != "" || !errorLine.MatchString(errs) {
			t.Errorf("agent %s: exit %d, want %d\nstdout %q\nstderr %q", line, code, want, out, errs)
		}
	}
	if _, _, errs := call(h, "run", "a1"); !strings.Contains(errs, "runner.sock") || !strings.Contains(errs, "agentd all") {
		t.Errorf("no hint that the runner is missing: %s", errs)
	}
}

// The true edge is the socket: the two services answer what the table says.
type services struct {
	runner.UnimplementedRunnerServiceServer
	deliverer.UnimplementedDelivererServiceServer
	asked []string
	moved string // inbox_path of the answers
	onAsk func() // called in each call
}

func (s *services) ask(what string) {
	s.asked = append(s.asked, what)
	if s.onAsk != nil {
		s.onAsk()
	}
}

// serve puts the services on the sockets of a home.
func (s *services) serve(t *testing.T, home string) {
	t.Helper()
	for _, name := range []string{"runner", "deliverer"} {
		l, err := net.Listen("unix", filepath.Join(home, "run", name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		runner.RegisterRunnerServiceServer(g, s)
		deliverer.RegisterDelivererServiceServer(g, s)
		go func() { _ = g.Serve(l) }()
		t.Cleanup(g.Stop)
	}
}

func (s *services) RunBatch(_ context.Context, r *runner.RunBatchRequest) (*runner.RunBatchResponse, error) {
	s.ask(r.GetAgentId())
	switch r.GetAgentId() {
	case "busy":
		return nil, fault.Status(fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent 'busy' is being worked on by x", "wait for it")).Err()
	case "idle":
		return &runner.RunBatchResponse{}, nil
	}
	return &runner.RunBatchResponse{Processed: 2, InboxPath: s.moved}, nil
}

func (s *services) DeliverBatch(_ context.Context, r *deliverer.DeliverBatchRequest) (*deliverer.DeliverBatchResponse, error) {
	s.ask(r.GetAgentId() + " " + r.GetThreadId())
	return &deliverer.DeliverBatchResponse{Sent: 1}, nil
}

// S0-12, S0-13: what is asked, and what the answers become.
func TestBatches(t *testing.T) {
	h := home(t)
	s := &services{}
	s.serve(t, h)
	for _, c := range []struct {
		line string
		code int
		out  string
	}{
		{"run a1", 0, "Agent 'a1' processed 2 message(s)\n"},
		{"run idle", 0, ""},
		{"run busy", 1, ""},
		{"deliver --thread " + h + "/agents/a1/threads/peers/x-y/ --consumer outbound", 0, ""},
		{"deliver --consumer=outbound --thread=" + h + "/agents/a1/threads/main", 0, ""},
	} {
		code, out, errs := call(h, strings.Fields(c.line)...)
		if code != c.code || out != c.out || (errs != "") != (code != 0) {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q", c.line, code, out, errs)
		}
	}
	if got, want := strings.Join(s.asked, ", "), "a1, idle, busy, a1 threads/peers/x-y, a1 threads/main"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// Any other verb is agentctl's, with the same words, streams and exit code.
func TestOtherVerbsAreAgentctls(t *testing.T) {
	dir := t.TempDir()
	shim := filepath.Join(dir, "agent")
	if out, err := exec.Command("go", "build", "-o", shim, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	t.Setenv("PATH", "/usr/bin:/bin")
	out, err := exec.Command(shim, "list", "--json").CombinedOutput()
	if err == nil || !errorLine.Match(out) || !strings.Contains(string(out), "no agentctl next to it") {
		t.Errorf("without agentctl: %v, %s", err, out)
	}
	script := "#!/bin/sh\necho \"$0 $@\"\nexit 7\n"
	if err := os.WriteFile(filepath.Join(dir, "agentctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(shim, "status", "a 1", "--json")
	got, _ := c.Output()
	if want := filepath.Join(dir, "agentctl") + " status a 1 --json\n"; string(got) != want || c.ProcessState.ExitCode() != 7 {
		t.Errorf("%q, exit %d", got, c.ProcessState.ExitCode())
	}
}

// A5: both commands of a dispatcher have a help, which is no failure.
func TestShimHelp(t *testing.T) {
	for _, line := range []string{"run --help", "run -h", "deliver --help", "deliver --thread x --help"} {
		if code, out, errs := call(home(t), strings.Fields(line)...); code != 0 || errs != "" || !strings.Contains(out, "agent run ID") {
			t.Errorf("agent %s: exit %d\nstdout %q\nstderr %q", line, code, out, errs)
		}
	}
}
