package xgw

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/deliverer/internal/channel"
)

// TestMain is the stand-in for the program when it is started under its name:
// the environment is an allow-list, so argv[0] is the only way to tell.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "xgw" {
		os.Exit(standIn(os.Getenv("HOME"), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
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

// TestSend is row S0-124: exactly these arguments, the text untouched.
func TestSend(t *testing.T) {
	for _, text := range []string{"hi there", "-rf --help", "a\n\"b\" 'c' $(d) `e` \\\n\n", "żółw 🐢", strings.Repeat("x", 300_000)} {
		home, env := install(t, "ok")
		x := New(Config{Env: env})
		got, err := x.Send(t.Context(), message(text))
		if err != nil || got.ProviderID != "" {
			t.Fatal(got, err)
		}
		c := calls(t, home)
		if len(c) != 1 || c[0].Stdin != text {
			t.Fatalf("%d calls, %.40q arrived", len(c), c[0].Stdin)
		}
		if diff := cmp.Diff(sendArgs("--session"), c[0].Args); diff != "" {
			t.Error(diff)
		}
		slices.Sort(c[0].Env)
		want := []string{"HOME=" + home, env[0], "THECLAW_ATTEMPT=2", "THECLAW_DELIVERY_KEY=k1", "THECLAW_FENCE=deliver/amy=42", "THECLAW_MAYBE_DUPLICATE=true", "XGW_CONFIG=/c.yaml"}
		if diff := cmp.Diff(want, c[0].Env); diff != "" {
			t.Error(diff)
		}
	}
	x := New(Config{})
	if x.Name() != "xgw" || x.Guarantee() != channel.None || channel.Host(x, message("")) != "" {
		t.Error(x.Name(), x.Guarantee())
	}
}

// TestOutcomes is S0-127 (a failed send is told apart) over the recorded
// answers of the program.
func TestOutcomes(t *testing.T) {
	for _, tc := range []struct {
		mode    string
		class   channel.Class
		what    string
		inDoubt bool
	}{
		{"fail", channel.Failed, "xgw send failed: stub channel failure", false},
		{"lie", channel.Failed, "xgw send failed: stub channel failure", false},
		{"crash", channel.Failed, "xgw send failed: listen EADDRINUSE: address already in use 127.0.0.1:28791", true},
		{"noconfig", channel.Failed, "xgw send failed: Config file not found at /home/.config/xgw/config.yaml - Create the file or specify a valid path with --config", false},
		{"exit127", channel.Unavailable, "xgw cannot be started", false},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			_, env := install(t, tc.mode)
			_, err := New(Config{Env: env}).Send(t.Context(), message("hi"))
			if e := failure(t, err, tc.class); e.What != tc.what || e.InDoubt != tc.inDoubt || e.Fix == "" {
				t.Errorf("%+v", e)
			}
		})
	}
	for _, mode := range []string{"quiet", "flood"} {
		_, env := install(t, mode)
		if _, err := New(Config{Env: env}).Send(t.Context(), message("hi")); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// TestSessionFlag: a later version renamed the option; the program is asked
// once, and no message is sent twice for it.
func TestSessionFlag(t *testing.T) {
	home, env := install(t, "usage --conversation", "help --conversation", "ok")
	x := New(Config{Env: env})
	for range 2 {
		if _, err := x.Send(t.Context(), message("hi")); err != nil {
			t.Fatal(err)
		}
	}
	var got [][]string
	for _, c := range calls(t, home) {
		got = append(got, c.Args)
	}
	want := [][]string{sendArgs("--session"), {"send", "--help"}, sendArgs("--conversation"), sendArgs("--conversation")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	home, env = install(t, "usage --session") // refused, and the help has no better answer
	_, err := New(Config{Env: env}).Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Failed); e.InDoubt || e.What != "xgw send failed: required option '--session <id>' not specified" {
		t.Errorf("%+v", e)
	}
	if n := len(calls(t, home)); n != 2 {
		t.Errorf("%d calls", n)
	}

	home, env = install(t, "usage --session") // configured: not asked
	_, err = New(Config{Env: env, SessionFlag: "room"}).Send(t.Context(), message("hi"))
	failure(t, err, channel.Failed)
	if c := calls(t, home); len(c) != 1 || !slices.Equal(c[0].Args, sendArgs("--room")) {
		t.Errorf("%v", c)
	}
}

// TestKilled: the end of the context takes the program and its children with
// it. The pipe ends only when nobody holds it any more.
func TestKilled(t *testing.T) {
	home, env := install(t, "hang")
	if err := syscall.Mkfifo(filepath.Join(home, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := New(Config{Env: env}).Send(ctx, message("hi"))
		done <- err
	}()
	fifo, err := os.Open(filepath.Join(home, "fifo")) // waits for the stand-in
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	ready := make([]byte, 5)
	if _, err := io.ReadFull(fifo, ready); err != nil {
		t.Fatal(err)
	}
	cancel()
	if e := failure(t, <-done, channel.Interrupted); !e.InDoubt {
		t.Error("it may have sent")
	}
	if rest, err := io.ReadAll(fifo); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// TestTimeout: the send's own time is over.
func TestTimeout(t *testing.T) {
	home, env := install(t, "hang")
	if err := syscall.Mkfifo(filepath.Join(home, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{Env: env, Timeout: 500 * time.Millisecond}).Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Failed); !e.InDoubt || !strings.Contains(e.What, "in time") {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = New(Config{Env: env}).Send(ctx, message("hi"))
	if e := failure(t, err, channel.Interrupted); e.InDoubt {
		t.Error("it never started")
	}
}

// TestMissingProgram: no attempt is spent while xgw is not there.
func TestMissingProgram(t *testing.T) {
	home := t.TempDir()
	plain := filepath.Join(home, "xgw")
	if err := os.WriteFile(plain, []byte("#!/nonexistent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + home}
	x := New(Config{Env: env})
	_, err := x.Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Unavailable); e.What != "xgw is not installed" || e.Fix == "" || e.InDoubt {
		t.Errorf("%+v", e)
	}
	_, err = New(Config{Env: env, Path: plain}).Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Unavailable); !errors.Is(e, os.ErrPermission) {
		t.Errorf("%+v", e)
	}
	if err := os.Chmod(plain, 0o700); err != nil { // executable now, its interpreter missing
		t.Fatal(err)
	}
	_, err = x.Send(t.Context(), message("hi"))
	failure(t, err, channel.Unavailable)
	if err := os.WriteFile(plain, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Send(t.Context(), message("hi")); err != nil {
		t.Errorf("installed while the message waited: %v", err)
	}
}

// TestRejected is row S0-126: without its parameters nothing is started.
func TestRejected(t *testing.T) {
	home, env := install(t, "ok")
	x := New(Config{Env: env})
	for _, key := range []string{"channel_id", "peer_id", "session_id"} {
		m := message("hi")
		delete(m.ReplyContext, key)
		_, err := x.Send(t.Context(), m)
		if e := failure(t, err, channel.Rejected); e.Reason != channel.ReasonReplyContext || !strings.Contains(e.What, key) {
			t.Errorf("%+v", e)
		}
	}
	m := message("hi")
	m.ReplyContext["peer_id"] = json.RawMessage(`"a\u0000b"`)
	_, err := x.Send(t.Context(), m)
	failure(t, err, channel.Rejected)
	_, err = x.Send(t.Context(), message(" \n\ufeff"))
	failure(t, err, channel.Rejected)
	if _, err := os.Stat(filepath.Join(home, "calls")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the program was started")
	}
}
