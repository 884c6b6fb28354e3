package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/telegram"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

// echo is a bot: it answers each message, and stores nothing.
type echo struct {
	channel.Channel
}

func (e *echo) Connected(string, string) error                 { return nil }
func (e *echo) Cursor(context.Context, string) (string, error) { return "", nil }
func (e *echo) Keep(string, string)                            {}
func (e *echo) Save(context.Context, string, string) error     { return nil }
func (e *echo) Ready() error                                   { return nil }
func (e *echo) Ignored()                                       {}

func (e *echo) Take(ctx context.Context, u channel.Update, stored func()) error {
	rc := channel.ReplyContext{}
	for key, value := range map[string]string{"session_id": u.SessionID, "kind": u.Kind, "platform_thread": u.Thread, "reply_to_id": u.MessageID} {
		rc[key] = []byte(`"` + value + `"`)
	}
	m := channel.Message{Text: "You wrote: " + u.Text, ReplyContext: rc}
	for _, a := range u.Attachments {
		m.Text += " [" + a.Type + " " + a.Name + "]"
	}
	if u.Text == "buttons" {
		m.Buttons = []channel.Button{{Text: "Yes", Command: "/yes"}, {Text: "No", Command: "/no"}}
	}
	// A script may end, and the server with it, before the last answer: what is printed shows what was sent.
	_, _ = e.Channel.(channel.Typer).Typing(ctx, rc)
	_, _ = e.Send(ctx, m)
	stored()
	return nil
}

// run runs the program with a script and a bot that answers, and returns what it printed.
func run(t *testing.T, script string, args ...string) (status int, out, errs string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := channel.Definition{Type: "telegram", Token: "env:TG_TOKEN", API: "http://" + at}
	deps := channel.Deps{Resolve: func(context.Context, string) (string, error) { return telegramtest.DefaultToken, nil }}
	c, err := telegram.Type.Open("tg", d, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var bot sync.WaitGroup
	bot.Go(func() {
		for ctx.Err() == nil { // until the program serves
			r, err := telegram.Type.Receive("tg", d, deps)
			if err != nil {
				t.Error(err)
				return
			}
			_ = r.Receive(ctx, &echo{Channel: c})
		}
	})
	var stdout, stderr bytes.Buffer
	status = Main(append([]string{"-listen", at}, args...), func(string) string { return "" }, strings.NewReader(script), &stdout, &stderr)
	cancel()
	bot.Wait()
	return status, strings.ReplaceAll(stdout.String(), at, "HOST"), stderr.String()
}

// A script plays the people of a private chat and of a group; what the bot does is printed.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "b.png"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, out, errs := run(t, strings.ReplaceAll(`hello
:wait You wrote: hello
buttons
:wait You wrote: buttons
:press 2
:wait You wrote: /no
:edit 5502 hello again
:wait You wrote: hello again
:group Friends -42
:as Ann
:topic 7
hi all
:wait You wrote: hi all
:album DIR/a.png DIR/b.png
:wait photo.jpg
:wait photo.jpg
:press 1
:nonsense
:voice DIR/missing.ogg
:quit
never sent
`, "DIR", dir))
	if status != 0 || errs != "" {
		t.Errorf("status %d: %s", status, errs)
	}
	want := `Bot API at http://HOST, token 4242:TEST-token_of-the-demo-bot - :help lists the commands
-- Bob writes in Bob (1207)
-- sent as #5502
-- demo_bot is typing to Bob
demo_bot to Bob #5503: You wrote: hello
-- sent as #5504
-- demo_bot is typing to Bob
demo_bot to Bob #5505: You wrote: buttons
    [1] Yes [2] No
-- demo_bot is typing to Bob
demo_bot to Bob #5506: You wrote: /no
-- demo_bot is typing to Bob
demo_bot to Bob #5507: You wrote: hello again
-- Bob writes in Friends (-42)
-- sent as #5508
-- demo_bot is typing to Friends
demo_bot to Friends #5509 in topic 7 answers #5508: You wrote: hi all
-- sent as #5510
`
	begin, _, _ := strings.Cut(out, "-- sent as #5510\n")
	if diff := cmp.Diff(want, begin+"-- sent as #5510\n"); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{"You wrote:  [image photo.jpg]", "! no message in this chat has buttons", "! there is no command :nonsense", "! read the file: "} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing in\n%s", line, out)
		}
	}
	if strings.Contains(out, "never sent") {
		t.Error("lines behind :quit were read")
	}
}

// What the bot does not send ends a script with status 1, wrong use with 2.
func TestFails(t *testing.T) {
	if status, _, errs := run(t, "hello\n:wait \x00 never\n", "-wait", "50ms"); status != 1 || !strings.Contains(errs, "the bot did not send it") {
		t.Errorf("status %d: %s", status, errs)
	}
	for _, args := range [][]string{{"-no-such"}, {"argument"}} {
		if status := Main(args, os.Getenv, strings.NewReader(""), io.Discard, io.Discard); status != 2 {
			t.Errorf("%v: status %d", args, status)
		}
	}
	for _, args := range [][]string{{"-listen", "127.0.0.1:none"}, {"-token", "x"}} {
		var stderr bytes.Buffer
		if status := Main(args, os.Getenv, strings.NewReader(""), io.Discard, &stderr); status != 1 || !strings.Contains(stderr.String(), "-listen") {
			t.Errorf("%v: status %d %s", args, status, stderr.String())
		}
	}
}
