package shell_test

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
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
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

func at(t *testing.T) toolset.Place {
	return toolset.Place{
		AgentID: "a1", ThreadID: "threads/main", Fence: "agent/a1=3", Trusted: func(context.Context) error { return nil },
		Config: &registrypb.TurnConfig{Workdir: filepath.Join(t.TempDir(), "made", "workdir")},
	}
}

// run makes a call as a turn does, and answers its journaled result.
func run(ctx context.Context, t *testing.T, b shell.Sandbox, at toolset.Place, arguments string) string {
	t.Helper()
	tools, err := toolset.New(&shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	r := tools.Set(at.Config).Run(ctx, toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: json.RawMessage(arguments), Place: at})
	if r.IsError {
		return string(toolset.Problem(r.Text))
	}
	return string(r.JSON)
}

// S0-104, S1-25: shell, directory, environment, time.
func TestCommand(t *testing.T) {
	place := at(t)
	place.Config.SandboxNetwork = true
	sub := string(quoted(filepath.Join(place.Config.GetWorkdir(), "b")))
	for arguments, want := range map[string]struct {
		shell   string
		timeout time.Duration
	}{
		`{"command":"ls"}`: {"ls", 600 * time.Second},
		`{"command":"ls","comment":"look","timeout_seconds":1.5}`: {"ls", 1500 * time.Millisecond},
		`{"command":"ls","cwd":"a/it's"}`:                         {"cd -- 'a/it'\\''s' || exit 1\nls", 600 * time.Second},
		`{"command":"ls","cwd":"."}`:                              {"ls", 600 * time.Second},
		`{"command":"ls","cwd":` + sub + `}`:                      {"cd -- 'b' || exit 1\nls", 600 * time.Second},
	} {
		b := &box{result: sandbox.Result{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 3}}
		got := run(t.Context(), t, b, place, arguments)
		if got != `{"stdout":"out","stderr":"err","exitCode":3,"timedOut":false,"truncated":false}` {
			t.Errorf("%s: %s", arguments, got)
		}
		c := b.got
		if c.Shell != want.shell || c.Timeout != want.timeout || c.Workdir != place.Config.GetWorkdir() || !c.Network {
			t.Errorf("%s: %+v", arguments, c)
		}
		if e := c.Env; len(e) != 4 || e["TOOL_IDEMPOTENCY_KEY"] != "k:tool:1:1" || e["THECLAW_FENCE"] != "agent/a1=3" || e["XAR_AGENT_ID"] != "a1" || e["XAR_CONV_ID"] != "threads/main" {
			t.Errorf("environment %v", e)
		}
	}
	if st, err := os.Stat(place.Config.GetWorkdir()); err != nil || st.Mode().Perm() != 0o700 {
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

// S4-64, S3-43: of a long output the model reads the beginning and the end, and all of it is in a file. The tool of
// the profile theclaw returns all of it, as earlier programs do (S0-103).
func TestLongOutput(t *testing.T) {
	r := sandbox.Result{Stdout: []byte(strings.Repeat("o", 40_000)), Stderr: []byte(strings.Repeat("e", 20_000))}
	for profile, long := range map[string]int{"theclaw": 60_000, "coding": 30_400} {
		place := at(t)
		place.Config.ToolLayers = layersOf(profile)
		place.Config.Processes = &registrypb.ProcessLimits{Max: 1}
		background := processes()
		tools, err := toolset.New(&shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return &box{result: r}, nil }, Processes: background}, shell.Process{Processes: background})
		if err != nil {
			t.Fatal(err)
		}
		var out toolset.Output
		called := tools.Set(place.Config).Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: json.RawMessage(`{"command":"x"}`), Place: place})
		if err := json.Unmarshal(called.JSON, &out); err != nil {
			t.Fatal(called.Text, err)
		}
		if n := len(out.Stdout) + len(out.Stderr); n > long || n < long-1000 || out.Truncated != (profile == "coding") {
			t.Errorf("%s: %d bytes, truncated %v", profile, n, out.Truncated)
		}
		kept, err := filepath.Glob(filepath.Join(place.Config.GetWorkdir(), ".output", "exec-*.txt"))
		if err != nil || len(kept) != map[string]int{"coding": 1}[profile] {
			t.Fatalf("%s: kept %v, %v", profile, kept, err)
		}
		if profile == "theclaw" {
			continue
		}
		if !called.Bounded || out.CompleteOutput != ".output/"+filepath.Base(kept[0]) {
			t.Errorf("the result names %q, bounded %v", out.CompleteOutput, called.Bounded)
		}
		if b, err := os.ReadFile(kept[0]); err != nil || string(b) != string(r.Stdout)+"\n[stderr]\n"+string(r.Stderr) || !strings.Contains(out.Stdout, filepath.Base(kept[0])) {
			t.Errorf("%d bytes are kept, %v: %s", len(b), err, out.Stdout[max(0, len(out.Stdout)/2-200):len(out.Stdout)/2+200])
		}
	}
}

// layersOf are the layers of a profile.
func layersOf(profile string) (out []*registrypb.ToolLayer) {
	for _, l := range toolpolicy.Layers(profile, toolpolicy.Scope{}, toolpolicy.Scope{}) {
		out = append(out, &registrypb.ToolLayer{Name: l.Name, Allow: l.Allow, Deny: l.Deny})
	}
	return out
}

// What cannot be understood runs nothing and says why.
func TestRefused(t *testing.T) {
	for arguments, want := range map[string]string{
		`{}`:                                 "command is missing",
		`{"command":" "}`:                    "command is missing",
		`{"command":7}`:                      "command must be of type string and is of type integer",
		`[]`:                                 "not a JSON object",
		`{"command":"ls","cwd":"../x"}`:      "inside the working directory",
		`{"command":"ls","cwd":"/etc"}`:      "inside the working directory",
		`{"command":"ls","cwd":"a/../../b"}`: "inside the working directory",
		`{"command":"ls","timeout_seconds":3601}`:                         "at most 3600",
		`{"command":"ls","timeout_seconds":-1}`:                           "at most 3600",
		`{"command":"ls","timeout_seconds":"ten"}`:                        "timeout_seconds must be of type number",
		`{"command":"` + strings.Repeat("x", toolset.MaxArguments) + `"}`: "larger than",
	} {
		b := &box{}
		got := run(t.Context(), t, b, at(t), arguments)
		if b.got != nil || !strings.HasPrefix(got, `{"error":`) || !strings.Contains(got, want) {
			t.Errorf("%.60s: %s, ran %v", arguments, got, b.got)
		}
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
		got := run(t.Context(), t, &c.b, at(t), `{"command":"x"}`)
		if !strings.Contains(got, c.want) || !json.Valid([]byte(got)) || len(got) > toolset.MaxResult {
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
	var r toolset.Output
	if err := json.Unmarshal([]byte(run(t.Context(), t, s, place, `{"command":"mkdir -p sub && cd sub && echo $XAR_AGENT_ID > f; pwd"}`)), &r); err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := json.Unmarshal([]byte(run(t.Context(), t, s, place, `{"command":"cat f; exit 4","cwd":"sub"}`)), &r); err != nil || r.ExitCode != 4 || r.Stdout != "a1\n" {
		t.Fatalf("%+v %v", r, err)
	}
	if err := json.Unmarshal([]byte(run(t.Context(), t, s, place, `{"command":"yes | head -c 400000"}`)), &r); err != nil || !r.Truncated || r.Spill == "" {
		t.Fatalf("%v %v %q", r.Truncated, err, r.Spill)
	}
	if st, err := os.Stat(r.Spill); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("spill file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := run(ctx, t, s, place, `{"command":"sleep 60"}`); !strings.Contains(got, "the turn was ended") {
		t.Errorf("cancelled: %s", got)
	}
}

func TestTool(t *testing.T) {
	tool := &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return silent{}, nil }}
	toolsettest.Run(t, tool, toolsettest.Cases{
		Good:   []string{`{"command":"ls"}`, `{"command":"ls","comment":"look","cwd":"sub","timeout_seconds":2}`},
		Bad:    []string{`{}`, `{"command":7}`, `{"command":" "}`, `{"command":"ls","cwd":"../.."}`, `{"command":"ls","timeout_seconds":0}`},
		Config: &registrypb.TurnConfig{Workdir: t.TempDir()},
	})
}

// silent is a sandbox that runs nothing.
type silent struct{}

func (silent) Run(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{Stdout: []byte("ok")}, nil
}
