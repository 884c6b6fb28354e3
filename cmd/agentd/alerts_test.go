package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Every alert asks for series that a real agentd shows when the thing has happened:
// with these names, these labels, and where the rule names a word, that word. That
// each rule then fires is shown in deploy/, by promtool.
func TestAlertsAskForWhatIsThere(t *testing.T) {
	b, err := os.ReadFile("../../deploy/prometheus/theclaw.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	missing := map[string]*regexp.Regexp{}
	selector := regexp.MustCompile(`\b((?:theclaw|grpc_server)_[a-z_]+)(\{[^}]*\})?`)
	for _, r := range file.Groups[0].Rules {
		found := selector.FindAllStringSubmatch(r.Expr, -1)
		if len(found) == 0 && r.Alert != "TheClawDown" {
			t.Errorf("%s asks for nothing", r.Alert)
		}
		for _, m := range found {
			missing[m[0]] = line(m[1], m[2])
		}
	}
	if len(missing) < 9 {
		t.Fatal(missing)
	}
	address := free(t)
	site, sink := world.NewSite(t, program(t)), world.NewSink(t)
	if err := os.MkdirAll(site.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	phone, err := telegramtest.Start(telegramtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(phone.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(phone.Token()), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := "mcp:\n  servers:\n    broken: {command: [/bin/false]}\n" + // it ends whenever it is started
		"channels:\n  tg: {type: telegram, token: 'file:" + token + "', api: '" + phone.URL() + "', dm: open}\n"
	if err := os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	p := site.Start(t, append([]string{"all", "--metrics-listen", address}, flags...)...)
	site.Serving(t, p, everything...)
	away, _ := world.Outage(t)
	site.Create(t, "a1", sink.Config())
	site.Create(t, "a2", strings.ReplaceAll(sink.Config(), sink.URL, away))
	// The one that lasts comes last: an inbox is acknowledged up to what is not done.
	for _, m := range [][2]string{{"bob", "fail: auth"}, {"carol", "say: " + world.Refused}, {"dave", "fail: unavailable 1"}, {"erin", "slow: 600"}} {
		if _, err := site.Push(t.Context(), "a1", world.Peer(m[0]), m[1], ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := site.Push(t.Context(), "a2", world.Peer("bob"), "say: into the dark", ""); err != nil {
		t.Fatal(err)
	}
	site.Create(t, "a3", sink.Config()+"\nsandbox: {mode: \"off\"}\ntools: {exec: {ask: always}}")
	if _, err := site.Push(t.Context(), "a3", world.Peer("bob"), "run: true", ""); err != nil {
		t.Fatal(err)
	}
	frank := telegramtest.User{ID: 7, FirstName: "Frank"}
	phone.Say(telegramtest.Message{Chat: telegramtest.Private(frank), From: &frank, Text: "an hour ago", Date: time.Now().Add(-time.Hour).Unix()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := runnerv1.NewToolServiceClient(site.Dial(t, "runner", rpc.Identity{})).StartServer(ctx, &runnerv1.StartServerRequest{AgentId: "a1", Server: "broken"}); err != nil {
		t.Fatal(err)
	}
	for wait := 10 * time.Millisecond; len(missing) > 0; wait = min(2*wait, time.Second) {
		text := scrape(ctx, t, address)
		for asked, series := range missing {
			if series.MatchString(text) {
				delete(missing, asked)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			t.Fatalf("no series for %v in\n%s", missing, text)
		}
	}
}

// line matches a series of a name with the labels of a selector. A label that is
// compared with one word has that word; of others, and of what nobody can bring
// about, only the name is looked for.
func line(name, labels string) *regexp.Regexp {
	pattern := "(?m)^" + name
	for _, m := range regexp.MustCompile(`([a-z_]+)(=~?)"([^"]*)"`).FindAllStringSubmatch(labels, -1) {
		value := regexp.QuoteMeta(m[3])
		if m[2] == "=~" || m[3] == "Internal" {
			value = `[^"]+`
		}
		pattern += `(?:\{|.*,)` + m[1] + `="` + value + `"`
	}
	return regexp.MustCompile(pattern + `.*\s[1-9]`)
}

// free is an address that nobody has now.
func free(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func scrape(ctx context.Context, t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "" // not yet
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	return string(b)
}
