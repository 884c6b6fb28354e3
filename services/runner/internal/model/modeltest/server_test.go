package modeltest_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask posts a chat request and returns the status and the data lines.
func ask(t *testing.T, base, said string) (status int, header http.Header, lines []string, err error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"`+said+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	scanner := bufio.NewScanner(res.Body)
	for scanner.Scan() {
		if line := scanner.Text(); line != "" {
			lines = append(lines, line)
		}
	}
	return res.StatusCode, res.Header, lines, scanner.Err()
}

// A script of a file does what it says, to real HTTP.
func TestScriptFromFile(t *testing.T) {
	steps, err := modeltest.LoadScript("testdata/script.json")
	if err != nil {
		t.Fatal(err)
	}
	server := modeltest.New(t, steps...)

	status, header, lines, err := ask(t, server.URL(), "the weather?")
	if err != nil || status != 200 || len(lines) != 4 || !strings.Contains(lines[1], `and\":\"date`) || lines[3] != "data: [DONE]" {
		t.Errorf("matched step: %d %q %v", status, lines, err)
	}
	if got := header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %s", got)
	}
	status, header, lines, err = ask(t, server.URL(), "x")
	if err != nil || status != 429 || header.Get("Retry-After") != "2" || !strings.Contains(lines[0], "rate_limit_exceeded") {
		t.Errorf("429: %d %v %q %v", status, header, lines, err)
	}
	_, _, lines, err = ask(t, server.URL(), "x")
	if err != nil || len(lines) != 5 || !strings.Contains(lines[3], `"cached_tokens":2`) {
		t.Errorf("text: %q %v", lines, err)
	}
	if _, _, lines, err = ask(t, server.URL(), "x"); !errors.Is(err, io.ErrUnexpectedEOF) || len(lines) != 1 {
		t.Errorf("cut: %q %v", lines, err)
	}
	for range 3 {
		if _, _, lines, err = ask(t, server.URL(), "ping"); err != nil || !strings.Contains(lines[0], "pong") {
			t.Errorf("repeated: %q %v", lines, err)
		}
	}
	if status, _, lines, err = ask(t, server.URL(), "x"); status != 400 || err != nil || !strings.Contains(lines[0], "no step") {
		t.Errorf("script used up: %d %q %v", status, lines, err)
	}
	if n := len(server.Requests()); n != 8 {
		t.Errorf("%d requests recorded", n)
	}
	if r := server.Requests()[0]; r.Chat.LastUser() != "the weather?" || r.Method != http.MethodPost {
		t.Errorf("recorded %+v", r)
	}
	if status, _, _, err = ask(t, server.URL()+"/other?", "x"); status != 404 || err != nil {
		t.Errorf("another path: %d %v", status, err)
	}
}

func TestClosedServerRefuses(t *testing.T) {
	server := modeltest.New(t)
	server.Close()
	if _, _, _, err := ask(t, server.URL(), "x"); err == nil {
		t.Error("a closed server answered")
	}
	if _, _, _, err := ask(t, modeltest.RefusedURL(t), "x"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("refused: %v", err)
	}
}

func TestBadScripts(t *testing.T) {
	if _, err := modeltest.LoadScript("testdata/none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(path, []byte(`{"steps":[{"txet":["a"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.LoadScript(path); err == nil || !strings.Contains(err.Error(), "txet") {
		t.Errorf("unknown key: %v", err)
	}
}
