package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/services/runner/internal/tool"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	goleak.VerifyTestMain(m)
}

// box is a sandbox that only remembers.
type box struct {
	got    *sandbox.Command
	result sandbox.Result
	err    error
}

func (b *box) Run(_ context.Context, c sandbox.Command) (sandbox.Result, error) {
	b.got = &c
	return b.result, b.err
}

func at(t *testing.T) tool.Place {
	return tool.Place{AgentID: "a1", ThreadID: "threads/main", Fence: "agent/a1=3", Workdir: filepath.Join(t.TempDir(), "made", "workdir")}
}

func call(arguments string) tool.Call {
	return tool.Call{Key: "k:tool:1:1", Name: tool.Name, Arguments: json.RawMessage(arguments)}
}

// S0-104, S1-25: shell, directory, environment, time.
func TestCommand(t *testing.T) {
	place := at(t)
	place.Network = true
	for arguments, want := range map[string]struct {
		shell   string
		timeout time.Duration
	}{
		`{"command":"ls"}`: {"ls", 600 * time.Second},
		`{"command":"ls","comment":"look","timeout_seconds":1.5}`:                          {"ls", 1500 * time.Millisecond},
		`{"command":"ls","cwd":"a/it's"}`:                                                  {"cd -- 'a/it'\\''s' || exit 1\nls", 600 * time.Second},
		`{"command":"ls","cwd":"."}`:                                                       {"ls", 600 * time.Second},
		`{"command":"ls","cwd":` + string(quoted(filepath.Join(place.Workdir, "b"))) + `}`: {"cd -- 'b' || exit 1\nls", 600 * time.Second},
	} {
		b := &box{result: sandbox.Result{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 3}}
		got := string(tool.Run(t.Context(), b, place, call(arguments)))
		if got != `{"stdout":"out","stderr":"err","exitCode":3,"timedOut":false,"truncated":false}` {
			t.Errorf("%s: %s", arguments, got)
		}
		c := b.got
		if c.Shell != want.shell || c.Timeout != want.timeout || c.Workdir != place.Workdir || !c.Network {
			t.Errorf("%s: %+v", arguments, c)
		}
		if e := c.Env; len(e) != 4 || e["TOOL_IDEMPOTENCY_KEY"] != "k:tool:1:1" || e["THECLAW_FENCE"] != "agent/a1=3" || e["XAR_AGENT_ID"] != "a1" || e["XAR_CONV_ID"] != "threads/main" {
			t.Errorf("environment %v", e)
		}
	}
	if st, err := os.Stat(place.Workdir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("workdir: %v %v", st, err)
	}
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// What cannot be understood runs nothing and says why.
func TestRefused(t *testing.T) {
	for arguments, want := range map[string]string{
		`{}`:                                 "command is missing",
		`{"command":" "}`:                    "command is missing",
		`{"command":7}`:                      "not understood",
		`[]`:                                 "not understood",
		`{"command":"ls","cwd":"../x"}`:      "inside the working directory",
		`{"command":"ls","cwd":"/etc"}`:      "inside the working directory",
		`{"command":"ls","cwd":"a/../../b"}`: "inside the working directory",
		`{"command":"ls","timeout_seconds":3601}`:                      "at most 3600",
		`{"command":"ls","timeout_seconds":-1}`:                        "at most 3600",
		`{"command":"ls","timeout_seconds":"ten"}`:                     "not understood",
		`{"command":"` + strings.Repeat("x", tool.MaxArguments) + `"}`: "larger than",
	} {
		b := &box{}
		got := string(tool.Run(t.Context(), b, at(t), call(arguments)))
		if b.got != nil || !strings.HasPrefix(got, `{"error":`) || !strings.Contains(got, want) {
			t.Errorf("%.60s: %s, ran %v", arguments, got, b.got)
		}
	}
	b := &box{}
	if got := string(tool.Run(t.Context(), b, at(t), tool.Call{Name: "rm_rf", Arguments: []byte(`{}`)})); b.got != nil || !strings.Contains(got, "no tool") {
		t.Errorf("unknown tool: %s", got)
	}
	if tool.ClassOf("rm_rf") != tool.Read || tool.ClassOf(tool.Name) != tool.Effect {
		t.Error("classes")
	}
}

func TestResults(t *testing.T) {
	for name, c := range map[string]struct {
		b    box
		want string
	}{
		"no sandbox": {box{err: fault.New(codes.FailedPrecondition, fault.SandboxUnavailable, "no sandbox works", "install bubblewrap")}, "no sandbox works - install bubblewrap"},
		"defect":     {box{err: errors.New("odd")}, "odd"},
		"timeout":    {box{result: sandbox.Result{TimedOut: true, ExitCode: 137}}, "ran longer than 10m0s"},
		"cancelled":  {box{result: sandbox.Result{Canceled: true, ExitCode: 137}}, "the turn was ended"},
		"spill":      {box{result: sandbox.Result{Truncated: true, Spill: "/w/.output/x"}}, `"truncated":true,"spill":"/w/.output/x"`},
		"escapes":    {box{result: sandbox.Result{Stdout: []byte("\x1b[31mred\x1b[0m")}}, `"stdout":"red"`},
		"binary":     {box{result: sandbox.Result{Stdout: []byte(strings.Repeat("\xff", 512<<10))}}, `"truncated":true`},
	} {
		got := tool.Run(t.Context(), &c.b, at(t), call(`{"command":"x"}`))
		if !strings.Contains(string(got), c.want) || !json.Valid(got) || len(got) > tool.MaxResult {
			t.Errorf("%s: %d bytes, %.300s", name, len(got), got)
		}
	}
}

// The real sandbox, where this machine has one.
func TestReal(t *testing.T) {
	s, err := sandbox.New(t.Context(), sandbox.Options{ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Report().Level == sandbox.LevelNone {
		need.Missing(t, fmt.Sprintf("a sandbox (%v)", s.Report().Problems), "run the tests as root, or install the package bubblewrap")
	}
	place := at(t)
	var r tool.Result
	if err := json.Unmarshal(tool.Run(t.Context(), s, place, call(`{"command":"mkdir -p sub && cd sub && echo $XAR_AGENT_ID > f; pwd"}`)), &r); err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := json.Unmarshal(tool.Run(t.Context(), s, place, call(`{"command":"cat f; exit 4","cwd":"sub"}`)), &r); err != nil || r.ExitCode != 4 || r.Stdout != "a1\n" {
		t.Fatalf("%+v %v", r, err)
	}
	if err := json.Unmarshal(tool.Run(t.Context(), s, place, call(`{"command":"yes | head -c 400000"}`)), &r); err != nil || !r.Truncated || r.Spill == "" {
		t.Fatalf("%v %v %q", r.Truncated, err, r.Spill)
	}
	if st, err := os.Stat(r.Spill); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("spill file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := string(tool.Run(ctx, s, place, call(`{"command":"sleep 60"}`))); !strings.Contains(got, "the turn was ended") {
		t.Errorf("cancelled: %s", got)
	}
}
