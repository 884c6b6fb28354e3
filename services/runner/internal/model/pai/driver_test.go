package pai_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	goleak.VerifyTestMain(m)
}

// replay is the edge to the operating system: it says what was recorded of pai,
// n bytes at a time.
type replay struct {
	help, stdout, stderr string
	exit, n              int
	signal               string
	asked                [][]string
	env                  map[string]string
}

func (r *replay) Run(_ context.Context, c sandbox.Command) (sandbox.Result, error) {
	r.asked = append(r.asked, c.Argv)
	if slices.Contains(c.Argv, "--help") {
		return sandbox.Result{Stdout: []byte(r.help)}, nil
	}
	r.env = c.Env
	n := max(r.n, 1)
	for s := range slices.Chunk([]byte(r.stderr), n) {
		c.OnStderr(s)
	}
	for s := range slices.Chunk([]byte(r.stdout), n) {
		c.OnStdout(s)
	}
	return sandbox.Result{ExitCode: r.exit, Signal: r.signal}, nil
}

const help = "--stream --json --session <path> --system-file <path> --input-file <path> --provider --model"

func recorded(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", name))
	if err != nil || len(files) != 1 {
		return ""
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// desk is a place with a program that is never really run.
func desk(t *testing.T, box pai.Sandbox) *pai.Driver {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "pai")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return pai.New(pai.Config{
		Name: "pai/fake", Provider: "fake", Env: map[string]string{"PATH": dir, "FAKE_API_KEY": "k"}, Sandbox: func() (pai.Sandbox, error) { return box, nil },
	}, pai.Place{
		AgentID: "a1", ThreadID: "threads/main", Key: "k1", Fence: "agent/a1=3", SandboxMode: "off",
		Workdir: filepath.Join(dir, "workdir"), Sessions: filepath.Join(dir, "sessions"),
	})
}

func say(text string) model.Request {
	return model.Request{Model: "m", System: "sys", Messages: []model.Message{{Role: model.RoleUser, Text: text}}}
}

// What was recorded of pai becomes the answer, the tools and the class it means
// (CONTRACTS 3.2, 3.3): by the number in the message, whatever the exit code.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		name, text string
		class      model.Class // 0: an answer
		status     int
		tries      int
		tools      string
	}{
		{"01", "echo: hello there", 0, 0, 0, ""},
		{
			"03", "tool said: {\"stdout\":\"hi-from-bash\\n\",\"stderr\":\"\",\"exitCode\":3}", 0, 0, 0,
			`bash_exec {"command":"echo hi-from-bash; exit 3","comment":"fake tool call"}; {"stdout":"hi-from-bash\n","stderr":"","exitCode":3}`,
		},
		{"04", "", model.RateLimited, 429, 3, ""},
		{"05", "", model.Auth, 401, 0, ""},
		{"06", "", model.ContextTooLong, 400, 0, ""},
		{"07", "", model.Unreachable, 0, 0, ""},
		{"08", "", model.Unavailable, 500, 3, ""},
		{"09", "", model.Unavailable, 503, 3, ""},
		{"10", "echo: ", 0, 0, 0, ""}, // cut, and nothing but its text says so: see TestBrokenOff
		{"11", "", 0, 0, 0, ""},       // the turn does not take it for an answer
		{"12", "echo: ONCE429:k1 hello", 0, 0, 0, ""},
		{"13", "", model.Auth, 0, 0, ""},
		{"14", "", model.Config, 0, 0, ""},
		{"15", "", model.Config, 0, 0, ""},
		{"22", "", model.Config, 0, 0, ""},
		{"33", "no tools offered", 0, 0, 0, ""},
		{
			"34", "tool said: {\"stdout\":\"start\\n\",\"stderr\":\"\\n[Aborted: session was terminated externally.]\",\"exitCode\":130}", 0, 0, 0,
			`bash_exec {"command":"echo start; sleep 20; echo end","comment":"fake tool call"}; {"stdout":"start\n","stderr":"\n[Aborted: session was terminated externally.]","exitCode":130}`,
		},
		{"35", "", model.CutStream, 0, 0, `bash_exec {"command":"echo start; sleep 7; echo end >> /srv/claw-a/t/kill9-side","comment":"fake tool call"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, 4096} {
				box := &replay{help: help, stdout: recorded(t, c.name+"-*.stdout"), stderr: recorded(t, c.name+"-*.stderr"), n: n}
				if _, err := fmt.Sscan(recorded(t, c.name+"-*.exit"), &box.exit); err != nil {
					t.Fatal(err)
				}
				if box.exit == 137 {
					box.signal = "SIGKILL"
				}
				for _, exit := range []int{box.exit, box.exit + 1} { // HEAD's are other numbers
					if exit != box.exit && (box.exit != 2 || c.name == "22") {
						continue
					}
					box.exit = exit
					var deltas strings.Builder
					var tools []string
					resp, err := desk(t, box).Generate(t.Context(), say("hi"), func(d model.Delta) {
						deltas.WriteString(d.Text)
						if u := d.Tool; u != nil && u.Result == nil {
							tools = append(tools, u.Call.Name+" "+string(u.Call.Arguments))
						} else if u != nil {
							tools = append(tools, string(u.Result))
						}
					})
					e := model.AsError(err)
					if e != nil && (e.Class != c.class || e.Status != c.status || e.Tries != c.tries || !strings.HasPrefix(e.Message, "pai/fake: ")) {
						t.Errorf("exit %d: %+v", exit, e)
					}
					if (e == nil) != (c.class == 0) || resp.Text != c.text || deltas.String() != c.text {
						t.Errorf("exit %d: %q, %q, %v", exit, resp.Text, deltas.String(), err)
					}
					if got := strings.Join(tools, "; "); got != c.tools {
						t.Errorf("tools %s", got)
					}
				}
			}
		})
	}
}

// An end that is not pai's own end is a cut stream, and what no version says is
// refused or a try, never an answer.
func TestOtherEnds(t *testing.T) {
	const start, complete = `{"type":"start","data":{}}` + "\n", `{"type":"complete","data":{"finishReason":%q}}` + "\n"
	for name, c := range map[string]struct {
		stderr string
		exit   int
		class  model.Class
	}{
		"no complete":        {start, 0, model.CutStream},
		"half an event":      {start + `{"type":"complete"`, 0, model.CutStream},
		"second round open":  {start + fmt.Sprintf(complete, "toolUse") + start, 0, model.CutStream},
		"tools, no end":      {start + fmt.Sprintf(complete, "toolUse"), 0, model.CutStream},
		"aborted":            {start + fmt.Sprintf(complete, "aborted"), 0, model.CutStream},
		"nothing":            {"", 0, model.CutStream},
		"length":             {start + fmt.Sprintf(complete, "length"), 0, 0},
		"noise":              {"[Warning] old\n" + start + "[Info] x\n" + fmt.Sprintf(complete, "stop"), 0, 0},
		"crash before":       {"TypeError: x\n", 1, model.Config},
		"crash in between":   {start + "TypeError: x\n", 1, model.CutStream},
		"quota":              {`{"type":"error","message":"429 You exceeded: insufficient_quota"}`, 2, model.Auth},
		"forbidden":          {`{"type":"error","message":"403 no"}`, 3, model.Auth},
		"too large":          {`{"type":"error","message":"413 prompt is too long"}`, 3, model.ContextTooLong},
		"refused request":    {`{"type":"error","message":"400 unknown field"}`, 2, model.Config},
		"content filter":     {`{"type":"error","message":"400 blocked by content filter"}`, 2, model.Policy},
		"slow":               {`{"type":"error","message":"Request timed out."}`, 2, model.Unavailable},
		"words without name": {`{"type":"error","message":"4294 things"}`, 2, model.BadResponse},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := desk(t, &replay{help: help, stdout: "text", stderr: c.stderr, exit: c.exit}).Generate(t.Context(), say("hi"), nil)
			if e := model.AsError(err); e == nil && c.class != 0 || e != nil && e.Class != c.class {
				t.Errorf("%v", err)
			}
		})
	}
}

// The options are asked for once per version, and taken as the version calls
// them; one that lacks any is refused.
func TestOptionsOfAVersion(t *testing.T) {
	box := &replay{help: strings.NewReplacer("--session", "--session_file", "--system-file", "--system_file").Replace(help), stderr: recorded(t, "01-*.stderr")}
	d := desk(t, box)
	for range 2 {
		if _, err := d.Generate(t.Context(), say("hi"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(box.asked) != 3 || !slices.Equal(box.asked[0][1:], []string{"chat", "--help"}) {
		t.Fatalf("started %q", box.asked)
	}
	if args := box.asked[2]; args[4] != "--session_file" || args[6] != "--system_file" || args[12] != "--input-file" {
		t.Errorf("called with %q", args)
	}
	if box.env["THECLAW_FENCE"] != "agent/a1=3" || box.env["TOOL_IDEMPOTENCY_KEY"] != "k1" || box.env["FAKE_API_KEY"] != "k" {
		t.Errorf("environment %v", box.env)
	}
	_, err := desk(t, &replay{help: "--stream --json"}).Generate(t.Context(), say("hi"), nil)
	if e := model.AsError(err); e == nil || e.Class != model.Config || !strings.Contains(e.Message, "--session") {
		t.Errorf("%v", err)
	}
}

// spy looks at the files of a call while it runs.
type spy struct {
	replay
	files map[string]string
}

func (s *spy) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	s.files = map[string]string{}
	for i, a := range c.Argv {
		if b, err := os.ReadFile(a); err == nil && i > 0 {
			s.files[c.Argv[i-1]] = string(b)
		}
	}
	return s.replay.Run(ctx, c)
}

// The message is what stands at the end of the prompt; what is before it is the
// session. Questions at the end go together, for pai would drop all but the last.
func TestFilesOfACall(t *testing.T) {
	user := func(s string) model.Message { return model.Message{Role: model.RoleUser, Text: s} }
	call := model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "c", Name: "bash_exec", Arguments: []byte(`{}`)}}}
	result := model.Message{Role: model.RoleTool, ToolCallID: "c", Name: "bash_exec", Text: "{}"}
	for _, c := range []struct {
		messages []model.Message
		lines    int
		input    string
	}{
		{[]model.Message{user("one")}, 1, "one"},
		{[]model.Message{user("one"), user("two")}, 1, "one\n\ntwo"},
		{[]model.Message{user("one"), {Role: model.RoleAssistant, Text: "1"}, user("two")}, 3, "two"},
		{[]model.Message{user("one"), call, result}, 4, pai.Resume},
	} {
		s := &spy{replay: replay{help: help, stderr: recorded(t, "01-*.stderr")}}
		req := model.Request{Model: "m", System: "sys", Messages: c.messages}
		if _, err := desk(t, s).Generate(t.Context(), req, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.files["--session"]; strings.Count(got, "\n") != c.lines || s.files["--input-file"] != c.input || s.files["--system-file"] != "sys" {
			t.Errorf("%d messages: %q", len(c.messages), s.files)
		}
	}
}

// The real thing: a program with a tool in a session of its own is ended as a
// whole when the call is (also how a lost lease ends it).
func TestCanceled(t *testing.T) {
	box, err := sandbox.New(t.Context(), sandbox.Options{Mode: sandbox.Off, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$2\" = --help ] && { echo '" + help + "'; exit; }\nsetsid sh -c 'echo up; sleep 600' &\nwait\n"
	if err := os.WriteFile(filepath.Join(dir, "pai"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	d := pai.New(pai.Config{Name: "pai", Provider: "p", Command: filepath.Join(dir, "pai"), Env: map[string]string{"PATH": os.Getenv("PATH")}, Sandbox: func() (pai.Sandbox, error) { return box, nil }},
		pai.Place{ThreadID: "threads/main", SandboxMode: "off", Workdir: filepath.Join(dir, "w"), Sessions: filepath.Join(dir, "s")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at time.Time
	_, err = d.Generate(ctx, say("hi"), func(model.Delta) { at = time.Now(); cancel() })
	if e := model.AsError(err); e == nil || e.Class != model.Canceled {
		t.Errorf("%v", err)
	}
	t.Logf("ended in %s", time.Since(at))
	if left, err := os.ReadDir(filepath.Join(dir, "s")); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Text comes in whole characters however it is cut.
func TestCharacters(t *testing.T) {
	const text = "naïve 日本 🙂 \xff end\xe6"
	box := &replay{help: help, stdout: text, stderr: recorded(t, "01-*.stderr"), n: 1}
	var deltas bytes.Buffer
	resp, err := desk(t, box).Generate(t.Context(), say("hi"), func(d model.Delta) { deltas.WriteString(d.Text) })
	if err != nil || resp.Text != "naïve 日本 🙂 \uFFFD end\uFFFD" || deltas.String() != resp.Text {
		t.Errorf("%q, %q, %v", resp.Text, deltas.String(), err)
	}
}

// probes is a program whose first probes end in other ways.
type probes struct {
	replay
	ends []sandbox.Result
	errs []error
}

func (p *probes) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	if !slices.Contains(c.Argv, "--help") || len(p.ends) == 0 {
		return p.replay.Run(ctx, c)
	}
	r, err := p.ends[0], p.errs[0]
	p.ends, p.errs, p.asked = p.ends[1:], p.errs[1:], append(p.asked, c.Argv)
	return r, err
}

// R4: a probe that was interrupted is made again; only a complete help text says that a
// version cannot be used, and the cause is what was seen.
func TestProbeInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		end   sandbox.Result
		err   error
		class model.Class
		cause string
	}{
		"killed":               {sandbox.Result{Signal: "SIGKILL", ExitCode: 137, Stdout: []byte("Usage: pai chat\n --stream")}, nil, model.Unavailable, "was ended by SIGKILL"},
		"timed out":            {sandbox.Result{TimedOut: true}, nil, model.Unavailable, "did not end within 30s"},
		"out of memory":        {sandbox.Result{ExitCode: 134, Stderr: []byte("FATAL ERROR: JavaScript heap out of memory")}, nil, model.Unavailable, "ended with 134: FATAL ERROR: JavaScript heap"},
		"no memory to start":   {sandbox.Result{}, fmt.Errorf("start: %w", syscall.ENOMEM), model.Unavailable, "cannot allocate memory"},
		"no process":           {sandbox.Result{}, errors.New("fork/exec: resource temporarily unavailable"), model.Unavailable, "resource temporarily unavailable"},
		"not a program":        {sandbox.Result{}, errors.New("exec format error"), model.Config, "exec format error"},
		"interpreter missing":  {sandbox.Result{ExitCode: 127, Stderr: []byte("env: node: No such file")}, nil, model.Config, "env: node: No such file"},
		"another version's":    {sandbox.Result{Stdout: []byte("--stream")}, nil, model.Config, "does not know --json"},
		"an error of its own":  {sandbox.Result{ExitCode: 1, Stderr: []byte("EMFILE: too many open files")}, nil, model.Unavailable, "ended with 1: EMFILE"},
		"help with exit code ": {sandbox.Result{ExitCode: 1, Stdout: []byte(help)}, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &probes{replay: replay{help: help, stderr: recorded(t, "01-*.stderr"), stdout: "hello"}, ends: []sandbox.Result{c.end}, errs: []error{c.err}}
			resp, err := desk(t, p).Generate(t.Context(), say("hi"), nil)
			e := model.AsError(err)
			if c.class == model.Config {
				if e == nil || e.Class != c.class || !strings.Contains(e.Message, c.cause) || len(p.asked) != 1 {
					t.Errorf("%v, started %q", err, p.asked)
				}
				return
			}
			if err != nil || resp.Text != "hello" { // once is not enough to fail the try
				t.Fatalf("%q, %v", resp.Text, err)
			}
			if c.class == 0 {
				return
			}
			p = &probes{replay: replay{help: help}, ends: []sandbox.Result{c.end, c.end, c.end}, errs: []error{c.err, c.err, c.err}}
			_, err = desk(t, p).Generate(t.Context(), say("hi"), nil)
			if e = model.AsError(err); e == nil || e.Class != c.class || !e.Recoverable() || !strings.Contains(e.Message, c.cause) || strings.Contains(e.Message, "version") || len(p.asked) != 2 {
				t.Errorf("%v, started %q", err, p.asked)
			}
		})
	}
}

// F1: what a program prints in bytes that are not UTF-8 is valid where it is recorded.
func TestToolsAreValid(t *testing.T) {
	stderr := `{"type":"start","data":{}}` + "\n" +
		"{\"type\":\"tool_call\",\"data\":{\"name\":\"b\xff\",\"arguments\":{\"a\":\"\xff\"}}}\n" +
		"{\"type\":\"tool_result\",\"data\":{\"stdout\":\"\xff\"}}\n" +
		`{"type":"complete","data":{"finishReason":"stop"}}` + "\n"
	var tools []string
	_, err := desk(t, &replay{help: help, stdout: "text", stderr: stderr}).Generate(t.Context(), say("hi"), func(d model.Delta) {
		if d.Tool != nil {
			tools = append(tools, d.Tool.Call.Name+string(d.Tool.Call.Arguments)+string(d.Tool.Result))
		}
	})
	if want := []string{"b\uFFFD{\"a\":\"\uFFFD\"}", "b\uFFFD{\"a\":\"\uFFFD\"}{\"stdout\":\"\uFFFD\"}"}; err != nil || !slices.Equal(tools, want) {
		t.Errorf("%q, %v", tools, err)
	}
}
