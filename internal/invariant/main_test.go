package invariant_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	code := m.Run()
	if made.dir != "" {
		_ = os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// hook is a receiver that writes down what arrives.
type hook struct {
	mu       sync.Mutex
	arrivals []invariant.Arrival
	came     chan string // texts
}

func (h *hook) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		Key            string `json:"key"`
		AgentID        string `json:"agent_id"`
		ThreadID       string `json:"thread_id"`
		EventID        int64  `json:"event_id"`
		Text           string `json:"text"`
		MaybeDuplicate bool   `json:"maybe_duplicate"`
	}
	b, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(b, &m) != nil {
		return
	}
	h.mu.Lock()
	h.arrivals = append(h.arrivals, invariant.Arrival{Key: m.Key, MaybeDuplicate: m.MaybeDuplicate, Agent: m.AgentID, Thread: m.ThreadID, EventID: m.EventID, At: time.Now()})
	h.mu.Unlock()
	h.came <- m.Text
}

// made is a home that the real services have worked in: a1 answers bob and alice
// over a webhook and uses a tool; a2 asked a1 something and has the answer.
var made struct {
	once    sync.Once
	dir     string
	thread  string // bob's
	other   string // alice's
	options invariant.Options
}

func makeHome(t *testing.T) {
	t.Helper()
	var err error
	if made.dir, err = os.MkdirTemp("", "inv"); err != nil {
		t.Fatal(err)
	}
	made.options, made.thread, made.other = live(t, world.Options{Home: filepath.Join(made.dir, "h"), TTL: time.Minute})
}

// peer is the source address of a person at an account whose name can stand in a session key.
func peer(name string) string { return "external:telegram:tg:dm:" + name + ":" + name }

// live is what made tells, in a world of some kind.
func live(t *testing.T, o world.Options) (told invariant.Options, bob, alice string) {
	t.Helper()
	h := &hook{came: make(chan string, 16)}
	srv := httptest.NewServer(h)
	defer srv.Close()
	w := world.Start(t, o)
	w.Create(t, "a1", "channels:\n  hook: {type: webhook, url: '"+srv.URL+"', allow_private: true}\noutbound: [{thread_pattern: 'peers/**', via: hook}]")
	w.Create(t, "a2", "outbound: []")
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a2"}); err != nil {
		t.Fatal(err) // or the two would go on talking
	}
	answered := watchInbox(t, w, "a2")
	history := &invariant.History{}
	say := func(source, text string) *registryv1.Turn {
		id, err := w.Push(t.Context(), "a1", source, text, "key "+text)
		if err != nil {
			t.Fatal(err)
		}
		history.Pushes = append(history.Pushes, invariant.Push{Agent: "a1", Key: "key " + text, IDs: []int64{id}})
		return w.Await(t, "a1", id)
	}
	bob = say(peer("bob"), "hello").GetThreadId()
	say(peer("bob"), "run: echo tool")
	say(peer("bob"), "once more")
	alice = say(peer("alice"), "say: good day").GetThreadId()
	for range 4 {
		<-h.came
	}
	say("internal:dm:default:a2", "say: from another agent")
	<-answered
	w.Stop() // the deliverer ends what it has begun
	return invariant.Options{Drained: true, Sink: h.arrivals, History: history}, bob, alice
}

// watchInbox tells when an inbox gets its first event.
func watchInbox(t *testing.T, w *world.World, agent string) <-chan struct{} {
	t.Helper()
	stream, err := w.Threads.WatchEvents(t.Context(), &registryv1.WatchEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	go func() {
		defer close(came)
		for {
			if r, err := stream.Recv(); err != nil || len(r.GetEvents()) > 0 {
				return
			}
		}
	}()
	return came
}

// home is a copy of the home and the options that go with it.
func home(t *testing.T) (layout.Home, invariant.Options) {
	t.Helper()
	made.once.Do(func() { makeHome(t) })
	to := filepath.Join(t.TempDir(), "h")
	from := filepath.Join(made.dir, "h")
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case e.IsDir():
			return os.MkdirAll(target, info.Mode().Perm())
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(target, b, info.Mode().Perm()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	o := made.options
	o.Sink, o.History = slices.Clone(o.Sink), &invariant.History{Pushes: slices.Clone(o.History.Pushes)}
	return layout.At(to), o
}

// edit changes a database with plain SQLite.
func edit(t *testing.T, h layout.Home, thread string, statements ...string) {
	t.Helper()
	editFile(t, filepath.Join(h.AgentDir("a1"), thread, "events.db"), statements...)
}

func editFile(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		r, err := db.ExecContext(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := r.RowsAffected(); err == nil && n == 0 && !strings.HasPrefix(s, "DROP") && !strings.HasPrefix(s, "CREATE") {
			t.Fatalf("%s: changed nothing", s)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, h layout.Home, o invariant.Options) []invariant.Finding {
	t.Helper()
	f, _, err := invariant.Check(context.WithoutCancel(t.Context()), h, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The services leave nothing that a check finds, and the check has looked.
func TestNothingIsFoundInAGoodHome(t *testing.T) {
	h, o := home(t)
	found, stats, err := invariant.Check(t.Context(), h, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	if stats.Agents != 2 || stats.Databases < 5 || stats.Turns < 5 || stats.Deliveries < 5 || stats.Chained != stats.Events || stats.Files < 20 {
		t.Errorf("looked at too little: %+v", stats)
	}
}
