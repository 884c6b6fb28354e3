package chat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/proofs/standin/pai/chat"
)

// recorder answers as the provider did with which testdata was recorded.
type recorder struct {
	mu   sync.Mutex
	once map[string]bool
	hits int
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var in struct {
		Messages []struct{ Role, Content string }
		Tools    []any
	}
	if json.NewDecoder(req.Body).Decode(&in) != nil {
		http.Error(w, "", http.StatusTeapot)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hits++
	last, user := in.Messages[len(in.Messages)-1], ""
	for _, m := range in.Messages {
		if m.Role == "user" {
			user = m.Content
		}
	}
	fail := func(status int, text string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q}}`, text)
	}
	say := func(delta, finish string) {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":%s,\"finish_reason\":%q}]}\n\n", delta, finish)
	}
	text := func(s string) {
		b, _ := json.Marshal(s)
		say(fmt.Sprintf(`{"content":%s}`, b), "")
	}
	command, tool := strings.CutPrefix(user, "TOOL:")
	failed := true
	switch {
	case user == "E429":
		fail(429, "Rate limit reached for fake-model")
	case user == "E401":
		fail(401, "Incorrect API key provided: fake.")
	case user == "ECTX":
		fail(400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.")
	case user == "E500":
		fail(500, "The server had an error")
	case user == "E503":
		fail(503, "Overloaded")
	case strings.HasPrefix(user, "ONCE429") && !r.once[user]:
		r.once[user] = true
		fail(429, "Rate limit reached for fake-model")
	default:
		failed = false
	}
	if failed {
		return
	}
	switch {
	case strings.HasPrefix(user, "EDROP"):
		text("echo: ")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case user == "EMPTY":
		say("{}", "stop")
	case tool && len(in.Tools) == 0:
		text("no tools offered")
		say("{}", "stop")
	case tool && last.Role == "tool":
		text("tool said: " + last.Content)
		say("{}", "stop")
	case tool:
		args, _ := json.Marshal(struct {
			Command string `json:"command"`
			Comment string `json:"comment"`
		}{command, "fake tool call"})
		quoted, _ := json.Marshal(string(args))
		say(fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"call_fake_1","function":{"name":"bash_exec","arguments":%s}}]}`, quoted), "")
		say("{}", "tool_calls")
	default:
		text("echo: " + user)
		say("{}", "stop")
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

var times = regexp.MustCompile(`"timestamp":("[^"]*"|\d+)`)

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// same compares without times and paths.
func same(t *testing.T, what, got, want, dir, configPath string) {
	t.Helper()
	got = strings.NewReplacer(configPath, "/srv/claw-a/home/.config/pai/default.json", dir, "/srv/claw-a/t/pai").Replace(times.ReplaceAllString(got, `"timestamp":0`))
	want = times.ReplaceAllString(want, `"timestamp":0`)
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

// Every recorded call gives the recorded output, events, exit code and session.
func TestRecordedCalls(t *testing.T) {
	r := &recorder{once: map[string]bool{}}
	server := httptest.NewServer(r)
	defer server.Close()
	closed := httptest.NewServer(r)
	closed.Close()
	dir := t.TempDir()
	configPath := filepath.Join(dir, "config.json")
	config := strings.NewReplacer("http://127.0.0.1:28461", server.URL, "http://127.0.0.1:9", closed.URL).Replace(recorded(t, "00-config-default.json"))
	for name, text := range map[string]string{configPath: config, filepath.Join(dir, "sys.md"): "You are a test agent.\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, hits := range map[string]int{
		"01-plain": 1, "02-second-turn": 1, "03-tool": 2, "04-429": 3, "05-401": 1, "06-ctx": 1, "07-refused": 0, "08-500": 3, "09-503": 3,
		"10-drop": 1, "11-empty": 1, "12-once429": 2, "13-nokey": 0, "14-unknown-provider": 0, "15-badsession": 0, "16-err-existing": 1, "33-maxturns": 1,
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(recorded(t, name+".cmd"))[3:]
			for i, a := range args {
				args[i] = strings.ReplaceAll(a, "/srv/claw-a/t/pai", dir)
			}
			session, before := filepath.Join(dir, name+".jsonl"), ""
			switch name {
			case "02-second-turn", "16-err-existing":
				before = recorded(t, "01-plain.session.jsonl")
			case "15-badsession":
				before = recorded(t, name+".session.jsonl")
			}
			if before != "" {
				if err := os.WriteFile(session, []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, name+".in"), []byte(recorded(t, name+".input.txt")), 0o600); err != nil {
				t.Fatal(err)
			}
			r.hits = 0
			var stdout, stderr bytes.Buffer
			code := chat.Main(args, strings.NewReader(""), &stdout, &stderr, func(n string) string {
				return map[string]string{"PAI_CONFIG": configPath, "STANDIN_PAI": "quick"}[n]
			})
			if want := strings.TrimSpace(recorded(t, name+".exit")); fmt.Sprint(code) != want || r.hits != hits {
				t.Errorf("exit %d after %d requests, want %s after %d", code, r.hits, want, hits)
			}
			same(t, "stdout", stdout.String(), recorded(t, name+".stdout"), dir, configPath)
			same(t, "stderr", stderr.String(), recorded(t, name+".stderr"), dir, configPath)
			got, err := os.ReadFile(session)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			same(t, "session", string(got), recorded(t, name+".session.jsonl"), dir, configPath)
		})
	}
}

// A wrong option is exit 2 in the parser's words; HEAD ends with 3 and no context.
func TestOtherVersions(t *testing.T) {
	run := func(quirk string, args ...string) (int, string) {
		var stderr bytes.Buffer
		code := chat.Main(args, strings.NewReader("hi"), &bytes.Buffer{}, &stderr, func(n string) string {
			return map[string]string{"STANDIN_PAI": quirk + ",quick", "PAI_CONFIG": config(t)}[n]
		})
		return code, stderr.String()
	}
	first, _, _ := strings.Cut(recorded(t, "22-badopt.stderr"), "\n")
	if code, said := run("", "chat", "--bogus"); code != 2 || !strings.HasPrefix(said, first+"\n") {
		t.Errorf("exit %d: %s", code, said)
	}
	if code, said := run("head", "chat", "--json", "--stream"); code != 3 || !strings.HasSuffix(said, "{\"type\":\"error\",\"message\":\"Connection error.\"}\n") {
		t.Errorf("exit %d: %s", code, said)
	}
	if code, _ := run("underscore", "chat", "--session", "x"); code != 2 {
		t.Errorf("exit %d", code)
	}
	if code, _ := run("underscore", "chat", "--json", "--session_file", filepath.Join(t.TempDir(), "s"), "hi"); code != 2 {
		t.Errorf("exit %d", code)
	}
}

// config names a provider that refuses connections.
func config(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	path := filepath.Join(t.TempDir(), "c.json")
	text := fmt.Sprintf(`{"defaultProvider":"d","providers":[{"name":"d","apiKey":"k","baseUrl":%q,"defaultModel":"m"}]}`, s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
