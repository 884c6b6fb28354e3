//go:build proof

package live_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	program.Main(m)
}

const (
	agent   = "a1"
	replied = registryv1.Fate_FATE_REPLIED
	quiet   = "outbound: []"
)

// inbox is the file of the agent's inbox.
func inbox(home string) string { return filepath.Join(home, "agents", agent, "inbox", "events.db") }

// foreign changes a database as another program does, with plain SQLite.
func foreign(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// replies counts the answers in the thread of a turn, and fails when a message
// of it has none or two.
func replies(t *testing.T, c world.Client, agent, threadID string) int {
	t.Helper()
	in, out := 0, 0
	for _, e := range c.Events(t, agent, threadID, "type = 'message'") {
		if e.GetSource() == "self" {
			out++
		} else {
			in++
		}
	}
	if in != out {
		t.Errorf("%s has %d messages and %d replies", threadID, in, out)
	}
	return out
}

// model is a provider on loopback that answers what a test wants.
type model struct {
	// answer writes an answer with say or call; nothing written is a call that
	// came to nothing.
	answer func(w http.ResponseWriter, r *http.Request, body string)
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller went away
	}
	m.answer(w, r, string(body))
}

// say ends a turn with a text.
func say(w http.ResponseWriter, text string) {
	stream(w, fmt.Sprintf(`{"content":%q},"finish_reason":"stop"`, text))
}

// call makes the agent run a command, with the id of the call.
func call(w http.ResponseWriter, id, command string) {
	arguments, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err) // strings always marshal
	}
	stream(w, fmt.Sprintf(`{"tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":"bash_exec","arguments":%q}}]},"finish_reason":"tool_calls"`, id, arguments))
}

func stream(w http.ResponseWriter, choice string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":`, choice, "}]}\n\ndata: [DONE]\n\n")
	_ = http.NewResponseController(w).Flush()
}

// with makes m the default provider of a home.
func (m *model) with(t *testing.T, home string) {
	t.Helper()
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "providers: {work: {base_url: \"" + s.URL + "/v1\", models: [m1]}}\n"
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// last is what the person said last, as far as a test must tell two apart.
func last(body, word string) bool {
	return strings.LastIndex(body, word) > strings.LastIndex(body, "harmless")
}
