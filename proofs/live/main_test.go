// Package live_test proves what RELIABILITY section 5 says of a home at work: a
// full disk, a message that kills, wake-ups that are lost, ids that come again,
// and a foreign pop. The services are the real ones, in this process or in one of
// their own where something has to die.
package live_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/world"
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
func replies(t *testing.T, c world.Client, threadID string) int {
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

// model is a provider on loopback that answers "ok" and tells of each call first.
type model struct {
	before func(body string)

	mu    sync.Mutex
	calls int
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller went away
	}
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	m.before(string(body))
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}`, "\n\ndata: [DONE]\n\n")
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

func push(ctx context.Context, t *testing.T, c world.Client, peer, text string) int64 {
	t.Helper()
	id, err := world.Again(ctx, func(ctx context.Context) (int64, error) {
		return c.Push(ctx, agent, world.Peer(peer), text, "key "+peer+" "+text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
