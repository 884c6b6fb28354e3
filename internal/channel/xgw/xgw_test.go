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

	"github.com/theclaw/agents/internal/channel"
)

// TestSend is row S0-124: exactly these arguments, the text untouched.
func TestSend(t *testing.T) {
	for _, text := range []string{"hi there", "-rf --help", "a\n\"b\" 'c' $(d) `e` \\\n\n", "żółw 🐢", strings.Repeat("x", 300_000)} {
		home, env := install(t, "ok")
		x := New(Config{Run: runHere, Env: env})
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
	x := New(Config{Run: runHere})
	if x.Name() != "xgw" || x.Guarantee() != channel.None || !strings.HasPrefix(channel.Destination(x, message("")), "tui-main ") {
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
		{"kill", channel.Failed, "xgw send failed", true},
		{"failhang", channel.Failed, "xgw send failed: stub channel failure", false},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			_, env := install(t, tc.mode)
			_, err := New(Config{Run: runHere, Env: env, Timeout: time.Second}).Send(t.Context(), message("hi"))
			if e := failure(t, err, tc.class); e.What != tc.what || e.InDoubt != tc.inDoubt || e.Fix == "" {
				t.Errorf("%+v", e)
			}
		})
	}
	for _, mode := range []string{"quiet", "flood"} {
		_, env := install(t, mode)
		if _, err := New(Config{Run: runHere, Env: env}).Send(t.Context(), message("hi")); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// R1: what the program has reported as sent is sent, however it ends after that.
func TestReportedIsSent(t *testing.T) {
	for _, mode := range []string{"ok1", "okkill", "okhang", "noisy"} {
		t.Run(mode, func(t *testing.T) {
			home, env := install(t, mode)
			if _, err := New(Config{Run: runHere, Env: env, Timeout: 2 * time.Second}).Send(t.Context(), message("hi")); err != nil {
				t.Errorf("%+v", err)
			}
			if n := len(calls(t, home)); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// TestSessionFlag: a later version renamed the option; the program is asked
// once for all channels, and no message is sent twice for it.
func TestSessionFlag(t *testing.T) {
	home, env := install(t, "usage --conversation", "help --conversation", "ok")
	for range 2 {
		if _, err := New(Config{Run: runHere, Env: env}).Send(t.Context(), message("hi")); err != nil {
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
	_, err := New(Config{Run: runHere, Env: env}).Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Failed); e.InDoubt || e.What != "xgw send failed: required option '--session <id>' not specified" {
		t.Errorf("%+v", e)
	}
	if n := len(calls(t, home)); n != 2 {
		t.Errorf("%d calls", n)
	}

	home, env = install(t, "usage --session") // configured: not asked
	_, err = New(Config{Run: runHere, Env: env, SessionFlag: "room"}).Send(t.Context(), message("hi"))
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
		_, err := New(Config{Run: runHere, Env: env}).Send(ctx, message("hi"))
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
	_, err := New(Config{Run: runHere, Env: env, Timeout: 2 * time.Second}).Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Failed); !e.InDoubt || !strings.Contains(e.What, "in time") {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = New(Config{Run: runHere, Env: env}).Send(ctx, message("hi"))
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
	x := New(Config{Run: runHere, Env: env})
	_, err := x.Send(t.Context(), message("hi"))
	if e := failure(t, err, channel.Unavailable); e.What != "xgw is not installed" || e.Fix == "" || e.InDoubt {
		t.Errorf("%+v", e)
	}
	_, err = New(Config{Run: runHere, Env: env, Path: plain}).Send(t.Context(), message("hi"))
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
	x := New(Config{Run: runHere, Env: env})
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
