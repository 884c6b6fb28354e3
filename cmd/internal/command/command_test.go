package command

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

func env(out, errs *bytes.Buffer, vars map[string]string) *Env {
	return New(strings.NewReader(""), out, errs, func(name string) string { return vars[name] }, "test")
}

// Commands that work on several agents ask for one connection at once.
func TestConnAtOnce(t *testing.T) {
	var out, errs bytes.Buffer
	e := env(&out, &errs, map[string]string{"THECLAW_HOME": t.TempDir()})
	conns := make([]grpc.ClientConnInterface, 100)
	var all sync.WaitGroup
	for i := range conns {
		all.Go(func() { conns[i] = e.Conn(Registry) })
	}
	all.Wait()
	for _, c := range conns {
		if c != conns[0] {
			t.Fatal("there are two connections to one service")
		}
	}
}

// JSON is written as the external tools write it.
func TestPrintJSON(t *testing.T) {
	var out, errs bytes.Buffer
	v := map[string]string{"k": "<a> & \u2028\u2029 \\u2028 \\\\u2029 \"q\""}
	if err := env(&out, &errs, nil).PrintJSON(v); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"k\": \"<a> & \u2028\u2029 \\\\u2028 \\\\\\\\u2029 \\\"q\\\"\"\n}\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// S0-137, S0-138: the two forms of an error, and the contract's words for an
// agent that is not there.
func TestReport(t *testing.T) {
	missing := fault.New(codes.NotFound, fault.AgentNotFound, "Agent 'x' not found at /h/agents/x", "run 'agent init x' first")
	missing.Meta = map[string]string{"dir": "/h/agents/x"}
	for _, c := range []struct {
		err       error
		json      bool
		code      int
		out, errs string
	}{
		{nil, false, 0, "", ""},
		{missing, false, 1, "", "Error: Agent 'x' not found at /h/agents/x - run 'agent init x' first\n"},
		{missing, true, 1, `{"error":"Agent 'x' not found","suggestion":"run 'agent init x' first"}` + "\n", ""},
		{fault.Usage("w", "f"), false, 2, "", "Error: w - f\n"},
		{&ReportedError{}, true, 1, "", ""},
		{errors.New("plain"), false, 1, "", "Error: plain\n"},
	} {
		var out, errs bytes.Buffer
		e := env(&out, &errs, nil)
		e.Flags.JSON = c.json
		if code := e.Report(c.err); code != c.code || out.String() != c.out || errs.String() != c.errs {
			t.Errorf("%v json=%v: exit %d\nstdout %q\nstderr %q", c.err, c.json, code, out.String(), errs.String())
		}
	}
}

// S0-142: the flag, then the variable, then the user's home.
func TestHome(t *testing.T) {
	var out, errs bytes.Buffer
	for _, c := range []struct {
		flag string
		vars map[string]string
		want string
	}{
		{"", map[string]string{"HOME": "/u"}, "/u/.theclaw"},
		{"", map[string]string{"HOME": "/u", "THECLAW_HOME": "/t"}, "/t"},
		{"/f", map[string]string{"HOME": "/u", "THECLAW_HOME": "/t"}, "/f"},
		{"", map[string]string{"HOME": "/u", "THECLAW_PROFILE": "dev"}, "/u/.theclaw-dev"},
		{"/f", map[string]string{"THECLAW_PROFILE": "dev"}, "/f-dev"},
	} {
		e := env(&out, &errs, c.vars)
		e.Flags.Home = c.flag
		if h, err := e.Home(); err != nil || h.Path() != c.want {
			t.Errorf("%+v: %s, %v", c, h.Path(), err)
		}
	}
	e := env(&out, &errs, map[string]string{"HOME": "/u", "THECLAW_PROFILE": "dev"})
	e.Flags.Profile = "other" // S2-05
	if h, err := e.Home(); err != nil || h.Path() != "/u/.theclaw-other" {
		t.Errorf("--profile: %s, %v", h.Path(), err)
	}
	if _, err := env(&out, &errs, nil).Home(); err == nil {
		t.Error("no home at all is not an error")
	}
}

func TestPages(t *testing.T) {
	got, err := Pages(func(token string) ([]int, string, error) {
		return map[string][]int{"": {1, 2}, "2": {3}}[token], map[string]string{"": "2"}[token], nil
	})
	if err != nil || len(got) != 3 || got[2] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Pages(func(string) ([]int, string, error) { return nil, "x", errors.New("no") }); err == nil {
		t.Error("the error of a page is lost")
	}
}

func TestPast(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"": {}, "24h": now.Add(-24 * time.Hour), "7d": now.AddDate(0, 0, -7), "2026-11-21T08:30:00Z": time.Date(2026, 11, 21, 8, 30, 0, 0, time.UTC), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := Past(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"x", "d", "0d", "-1d", "-3h", "2026-13-01", "99999999d"} {
		if got, err := Past(in, now); err == nil {
			t.Errorf("%q became %v", in, got)
		}
	}
}

// A5: what a service refuses of the command line is exit code 2, data and all else is 1.
func TestExitCode(t *testing.T) {
	argument := fault.New(codes.InvalidArgument, fault.InvalidArgument, "w", "f")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{fault.Usage("w", "f"), 2},
		{argument, 2},
		{fault.New(codes.InvalidArgument, fault.FilterInvalid, "w", "f"), 2},
		{fault.New(codes.InvalidArgument, fault.ConfigInvalid, "w", "f"), 2},
		{fault.New(codes.FailedPrecondition, fault.InvalidArgument, "w", "f"), 1},
		{fault.New(codes.NotFound, fault.AgentNotFound, "w", "f"), 1},
		{fault.New(codes.InvalidArgument, fault.EventTooLarge, "w", "f"), 1},
		{Data(argument), 1},
		{errors.New("w"), 1},
		{&ReportedError{}, 1},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
	if Data(nil) != nil || fault.From(Data(argument)).What != "w" {
		t.Error("data loses its words")
	}
}

// A5: a negative number as the last argument is no flag; the value of a flag stays there.
func TestNegative(t *testing.T) {
	for line, want := range map[string]string{
		"config set a k -1":        "config set a k -- -1",
		"config set a k -1 --json": "config set a k --json -- -1",
		"config set a k -0.5":      "config set a k -- -0.5",
		"config set a k -1h30m":    "config set a k -- -1h30m",
		"audit show -n -1":         "audit show -n -1",
		"config set a k -- -1":     "config set a k -- -1",
		"send a text -x":           "send a text -x",
		"send -1 hello":            "send -1 hello",
		"events a t --after -1":    "events a t --after -1",
	} {
		if got := strings.Join(negative(strings.Fields(line)), " "); got != want {
			t.Errorf("%s became %s, want %s", line, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "25h": 25 * time.Hour, "0d": 0, "1000h30m": 1000*time.Hour + 30*time.Minute, "90s": 90 * time.Second,
	} {
		if got, err := Duration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "-3d", "x", "99999d", "30", "1.5d", "2h ago"} {
		if got, err := Duration(in); err == nil {
			t.Errorf("%q became %v", in, got)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 agent": Count(1, "agent"), "0 agents": Count(0, "agent"), "2 replies": Count(int64(2), "reply", "replies"), "1 reply": Count(int32(1), "reply", "replies"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Every value has the same form in YAML, with the keys in their order.
func TestYAML(t *testing.T) {
	for _, text := range []string{
		"", "plain", "two\nlines\n", "  indented\n\n", "# no comment", "- a", "a: b", "true", "null", "~", "no", "1", "1.0", "0x1f", "1e3", "12:30:45",
		"2026-11-25", "'", `"`, `\`, "\t", "\x1b[2J", "\x00", "\u2028", "\u0085", "日本語 👍", "{", "[a]", "*", "&a", "!t", "%", "@", "`", "|", ">", "? x", ": ", "=", "a #b", "trailing ", "\r\n", "a\r\nb", "<<", "-", "---", "...", "𝄞", "\n", "\n\na", "a\n\n b\n", "a\n\n", "\x7f", "\ufeff", "a\u2028\nb", "Yes", "e.g. (this)", "a, b",
	} {
		v := map[string]any{"list": []any{text, map[string]any{"k": text}}, text: 1.5}
		b, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		y, err := toYAML(b)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var back any
		if err := yaml.Unmarshal(y, &back); err != nil {
			t.Errorf("%q: %v\n%s", text, err, y)
			continue
		}
		again, err := encode(back)
		if err != nil || string(again) != string(b) {
			t.Errorf("%q: %v\n%s\nbecame\n%s", text, err, y, again)
		}
	}
	y, err := toYAML([]byte(`{"z": 9007199254740993, "a": [], "m": {}, "b": [{"x": null, "ok": true}, [1, [2]], "t\n  u"], "u": 18446744073709551615}`))
	want := "z: 9007199254740993\na: []\nm: {}\nb:\n  - x: null\n    ok: true\n  -\n    - 1\n    -\n      - 2\n  - |-\n    t\n      u\nu: 18446744073709551615\n"
	if err != nil || string(y) != want {
		t.Errorf("%v\n%s", err, y)
	}
}

// What is asked for is known before the flags are parsed.
func TestWantsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"list": false, "list --json": true, "list --json=true": true, "list -o json": true, "list -ojson": true, "list -o=json": true,
		"list --output json": true, "list --output=json": true, "send -- --json": false, "list -o yaml": false, "list -o": false, "list --output": false,
	} {
		if got := WantsJSON(strings.Fields(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
