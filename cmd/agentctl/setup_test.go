//go:build proof

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

// model is a provider that takes one key and, as careless ones do, repeats a wrong one.
type model struct {
	key, url string
	calls    atomic.Int32
	entered  chan struct{} // a call is under way
	hold     atomic.Bool   // calls get no answer
}

func newModel(t *testing.T, key string) *model {
	t.Helper()
	m := &model{key: key, entered: make(chan struct{}, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.calls.Add(1)
		var body struct {
			Model string `json:"model"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		m.entered <- struct{}{}
		if m.hold.Load() {
			<-r.Context().Done()
			return
		}
		if got := r.Header.Get("Authorization"); got != "Bearer "+m.key {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s (%s)"}}`, strings.TrimPrefix(got, "Bearer "), got)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, `data: {"id":"1","model":%q,"choices":[{"index":0,"delta":{"content":"hello from %s"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", body.Model, body.Model)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL + "/v1"
	return m
}

// digest is the hash of the settings and keys of a home, and of the names in it.
func digest(t *testing.T, home string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(home, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (rel == "run" || rel == "audit" || strings.HasSuffix(rel, "logs") || strings.HasSuffix(rel, "sessions")):
			return fs.SkipDir
		case e.Type().IsRegular() && (strings.HasSuffix(rel, ".yaml") || strings.HasSuffix(rel, ".key") || strings.HasSuffix(rel, ".token")):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s %x\n", rel, sha256.Sum256(b))
		case !strings.Contains(rel, ".db"):
			fmt.Fprintln(sum, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// setup --yes: the key is tested before anything is written, is stored where only its
// owner can read it, is printed nowhere, and a second run changes nothing.
func TestSetup(t *testing.T) {
	m := newModel(t, "sk-good-0123456789abcdef")
	home := filepath.Join(t.TempDir(), "h")
	tmp := t.TempDir()
	run := func(code int, key, in string, args ...string) string {
		t.Helper()
		c := exec.Command(filepath.Join(built(t), "agentctl"), append([]string{"setup", "--yes"}, args...)...)
		c.Env = []string{"THECLAW_HOME=" + home, "HOME=" + tmp, "TMPDIR=" + tmp, "PATH=/usr/bin:/bin", "MY_KEY=" + key}
		c.Stdin = strings.NewReader(in)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		_ = c.Run()
		if got := c.ProcessState.ExitCode(); got != code {
			t.Fatalf("setup %q: exit %d, want %d\n%s", args, got, code, &out)
		}
		if key != "" && strings.Contains(out.String(), key) {
			t.Errorf("setup %q prints the key:\n%s", args, &out)
		}
		if left, _ := filepath.Glob(filepath.Join(tmp, "theclaw-setup-*")); len(left) > 0 {
			t.Errorf("setup %q leaves %s", args, left)
		}
		return out.String()
	}
	work := []string{"--provider", "work", "--base-url", m.url, "--model", "m1", "--key-from-env", "MY_KEY"}

	if out := run(1, "sk-wrong-0123456789abcdef", "", work...); !strings.Contains(out, "key refused") {
		t.Error(out)
	}
	run(2, "", "", "--provider", "openai")
	run(2, "", "", "--channel", "plugin", "--token-env", "MY_KEY") // it has no token
	run(2, "", "", "--model", "m1")
	run(1, "", "", work...)
	// S3-75: a name that is not known is refused with those that are.
	out := run(2, m.key, "", "--provider", "nosuch", "--model", "m1", "--key-env", "MY_KEY")
	for _, name := range providerNames {
		if !strings.Contains(out, name) {
			t.Errorf("%s is not offered: %s", name, out)
		}
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Error("something was written before a key was accepted:", err)
	}

	// Without a key it goes on and says what answers.
	if out := run(0, "", "hello\n"); !strings.Contains(out, "offline: hello\n") || !strings.Contains(out, "no language model") {
		t.Error(out)
	}
	if out := run(0, m.key, "hello\n", work...); !strings.Contains(out, "hello from m1") {
		t.Error(out)
	}
	for name, want := range map[string]string{"work.key": m.key + "\n", "providers.yaml": ""} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(name, info, err)
		}
		b, err := os.ReadFile(filepath.Join(home, name))
		if err != nil || want != "" && string(b) != want || want == "" && bytes.Contains(b, []byte(m.key)) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	before := digest(t, home)
	run(0, m.key, "", append(work, "--no-chat")...)
	run(0, "", "", "--no-chat")
	run(1, "sk-wrong-0123456789abcdef", "", work...)
	run(1, m.key, "", "--provider", "work", "--base-url", m.url, "--model", "other", "--key-from-env", "MY_KEY")
	if after := digest(t, home); after != before {
		t.Error("a second run has changed the home")
	}
	// What was there is kept when it is replaced.
	run(0, m.key, "", "--provider", "work", "--base-url", m.url, "--model", "m2", "--key-env", "MY_KEY", "--replace", "--no-chat")
	if b, err := os.ReadFile(filepath.Join(home, "providers.yaml.old")); err != nil || !bytes.Contains(b, []byte("m1")) {
		t.Errorf("%s, %v", b, err)
	}
	// An alias is stored under the name of the provider, and a region under its own.
	for given, name := range map[string]string{"google": "gemini", "dashscope": "dashscope"} {
		run(0, m.key, "", "--provider", given, "--base-url", m.url, "--model", "m1", "--key-env", "MY_KEY", "--replace", "--no-chat")
		if b, err := os.ReadFile(filepath.Join(home, "providers.yaml")); err != nil || !bytes.Contains(b, []byte("default: "+name+"\n")) {
			t.Errorf("%s: %s, %v", given, b, err)
		}
	}
}

// setup --yes with a channel: one command from an empty home to the first reply over it; a second run
// changes nothing; a token that is refused is reported.
func TestSetupChannel(t *testing.T) {
	api, err := telegramtest.Start(telegramtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	m := newModel(t, "sk-good-0123456789abcdef")
	home, tmp := filepath.Join(t.TempDir(), "h"), t.TempDir()
	must(t, os.Mkdir(home, 0o700))
	must(t, os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte("gateway: {http: \"127.0.0.1:0\"}\n"), 0o600))
	start := func(token string, args ...string) (c *exec.Cmd, in io.Closer, out *bytes.Buffer) {
		t.Helper()
		c = exec.Command(filepath.Join(built(t), "agentctl"), append([]string{"setup", "--yes", "--provider", "work", "--base-url", m.url, "--model", "m1", "--key-from-env", "MY_KEY"}, args...)...)
		c.Env = []string{"THECLAW_HOME=" + home, "HOME=" + tmp, "TMPDIR=" + tmp, "PATH=/usr/bin:/bin", "TG=" + token, "MY_KEY=" + m.key}
		out = &bytes.Buffer{}
		c.Stdout, c.Stderr = out, out
		in, err := c.StdinPipe()
		must(t, err)
		must(t, c.Start())
		return c, in, out
	}
	first := []string{"--channel", "telegram", "--token-env", "TG", "--api", api.URL(), "--owner", "1207"}
	c, in, out := start(api.Token(), first...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bob := telegramtest.User{ID: 1207, FirstName: "Bob"}
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "hello"})
	if _, err := api.WaitText(ctx, "hello from m1", 0); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	must(t, in.Close())
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "telegram is up as @demo_bot") || strings.Contains(out.String(), api.Token()) {
		t.Fatalf("%v\n%s", err, out)
	}
	before := digest(t, home)
	c, in, out = start(api.Token(), append(first, "--no-chat")...)
	must(t, in.Close())
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "it stays as it is") || digest(t, home) != before {
		t.Errorf("a second run: %v\n%s", err, out)
	}
	if info, err := os.Stat(filepath.Join(home, "telegram.token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	// Nothing in the home names its place: it works elsewhere.
	settings, err := os.ReadFile(filepath.Join(home, "theclaw.yaml"))
	must(t, err)
	moved := filepath.Join(t.TempDir(), "moved")
	must(t, os.Rename(home, moved))
	if bytes.Contains(settings, []byte(home)) {
		t.Errorf("the settings name the home:\n%s", settings)
	}
	home = moved
	c, in, out = start(api.Token(), append(first, "--no-chat")...)
	must(t, in.Close())
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "telegram: up") {
		t.Errorf("a home that was moved: %v\n%s", err, out)
	}
	other := filepath.Join(t.TempDir(), "h")
	must(t, os.Mkdir(other, 0o700))
	must(t, os.WriteFile(filepath.Join(other, "theclaw.yaml"), []byte("gateway: {http: \"127.0.0.1:0\"}\n"), 0o600))
	home = other
	c, in, out = start("4242:REVOKED", append(first, "--no-chat")...)
	must(t, in.Close())
	if err := c.Wait(); err == nil || !strings.Contains(out.String(), "the account telegram is auth") || strings.Contains(out.String(), "REVOKED") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The questions about a channel at a terminal: the token is hidden, and the code that the bot has
// answered with makes its person an owner.
func TestSetupChannelAtATerminal(t *testing.T) {
	api, err := telegramtest.Start(telegramtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	home := filepath.Join(t.TempDir(), "h")
	must(t, os.Mkdir(home, 0o700))
	must(t, os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte("gateway: {http: \"127.0.0.1:0\"}\n"), 0o600))
	s := terminal(t, ctl(t, home, "HOME='"+home+"' PATH=/usr/bin:/bin", "setup --channel telegram --api "+api.URL()))
	s.shows("Enter for none:")
	s.do("send-keys", "Enter")
	s.shows("The token of telegram (not shown)")
	s.do("send-keys", "-l", api.Token())
	s.do("send-keys", "Enter")
	s.shows("Write to it now", "Code, Enter to leave it out:")
	s.hides(api.Token())
	bob := telegramtest.User{ID: 1207, FirstName: "Bob"}
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "hi"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := api.WaitText(ctx, "Code: ", 0)
	must(t, err)
	code, _, _ := strings.Cut(m.Text[strings.Index(m.Text, "Code: ")+len("Code: "):], " ")
	s.do("send-keys", "AAAAAAAA", "Enter")
	s.shows("no person waits with this code")
	s.do("send-keys", code, "Enter")
	s.shows("Say something to admin")
	s.do("send-keys", "C-d")
	s.shows("exit=0")
}

// Whatever ends setup while it tests a key, the home is as it was and the child has ended.
func TestSetupInterrupted(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "ended": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, "sk-good-0123456789abcdef")
			m.hold.Store(true)
			tmp := t.TempDir()
			home := filepath.Join(tmp, "h")
			c := exec.Command(filepath.Join(built(t), "agentctl"), "setup", "--yes", "--provider", "work", "--base-url", m.url, "--model", "m1", "--key-from-env", "MY_KEY", "--no-chat")
			c.Env = []string{"THECLAW_HOME=" + home, "HOME=" + tmp, "TMPDIR=" + tmp, "MY_KEY=" + m.key}
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			must(t, c.Start())
			<-m.entered
			trials, err := filepath.Glob(filepath.Join(tmp, "theclaw-setup-*"))
			if err != nil || len(trials) != 1 {
				t.Fatal(trials, err)
			}
			pid := lockedBy(t, trials[0])
			must(t, c.Process.Signal(signal))
			if err := c.Wait(); err == nil {
				t.Error("it succeeded")
			}
			gone(t, pid)
			if _, err := os.Stat(home); !os.IsNotExist(err) {
				t.Error("something was written:", err)
			}
			// What a kill leaves holds no key.
			must(t, filepath.WalkDir(tmp, func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return err
				}
				b, err := os.ReadFile(path)
				if bytes.Contains(b, []byte(m.key)) {
					t.Error(path, "holds the key")
				}
				return err
			}))
			if strings.Contains(out.String(), m.key) {
				t.Errorf("the key is printed:\n%s", &out)
			}
		})
	}
}

// The questions, at a terminal: the key is not shown, a wrong one is asked for again, and
// Ctrl-C at a question writes nothing and leaves the terminal as it was.
func TestSetupAtATerminal(t *testing.T) {
	m := newModel(t, "sk-good-0123456789abcdef")
	home := filepath.Join(t.TempDir(), "h")
	line := ctl(t, home, "HOME='"+home+"' PATH=/usr/bin:/bin", "setup")
	first, _, _ := strings.Cut(line, "; exec cat")
	s := terminal(t, first+"; stty -a | grep -o ' echo '; "+line)
	s.shows("Which model provider", "openai", "Enter for none:")
	s.do("send-keys", "opnai", "Enter") // nearly a name of the list
	s.shows("Is opnai a server of your own, and not openai? [y/N]")
	s.do("send-keys", "Enter")
	s.do("send-keys", "work", "Enter")
	s.shows("Address of its API")
	s.do("send-keys", m.url, "Enter")
	s.shows("Model:")
	s.do("send-keys", "m1", "Enter")
	s.shows("Key (not shown")
	s.do("send-keys", "C-c")
	s.shows("Error: interrupted before the question was answered", "exit=1", "echo", "Enter for none:")
	if _, err := os.Stat(filepath.Join(home, "providers.yaml")); !os.IsNotExist(err) {
		t.Error("something was written:", err)
	}
	s.do("send-keys", "work", "Enter")
	s.shows("exit=1", "Address of its API")
	s.do("send-keys", m.url, "Enter")
	s.shows("exit=1", "Model:")
	s.do("send-keys", "m1", "Enter")
	s.shows("exit=1", "Key (not shown")
	s.do("send-keys", "sk-wrong-0123456789abcdef", "Enter")
	s.shows("key refused", "Key (not shown")
	s.do("send-keys", m.key, "Enter")
	s.shows("work answers as m1")
	s.hides(m.key, "sk-wrong")
	s.shows("A chat platform to write from (discord, slack, telegram)")
	s.do("send-keys", "nosuch", "Enter")
	s.shows("is none of them")
	s.do("send-keys", "Enter")
	s.shows("Say something to admin")
	s.do("send-keys", "hello", "Enter")
	s.shows("hello from m1")
	s.do("send-keys", "C-d")
	s.shows("exit=0")
	if b, err := os.ReadFile(filepath.Join(home, "work.key")); err != nil || string(b) != m.key+"\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if !alive(pid) {
			return
		}
		<-tick.C
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("agentd (pid %d) was left behind", pid)
}
