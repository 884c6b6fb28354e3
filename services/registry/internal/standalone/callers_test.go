package standalone_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func healthy(t *testing.T, w *world, log *lines, after string) {
	t.Helper()
	r, err := w.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: "a1"})
	if a := backendtest.Must(t, r, err).GetAgent(); a.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK || a.GetProblem() != "" {
		t.Errorf("after %s: %v", after, a)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("after %s:\n%s", after, log)
	}
}

// F18: what a caller got wrong is his error alone: no line of it is an error of ours, and
// the agent that he named is well.
func TestABadThreadIDIsTheCallersError(t *testing.T) {
	log := &lines{}
	w := start(t, backendtest.Options{
		Home: filepath.Join(t.TempDir(), "h"), Change: func(d *registry.Deps) { d.Logger = slog.New(slog.NewTextHandler(log, nil)) },
	}, registry.Config{})
	w.Create("a1")
	for _, id := range []string{"threads", "threads/../../x", "inbox/x", "threads/a/b/c/d/e/f", "threads//x", "nothing", "threads/" + strings.Repeat("x", 300)} {
		ref := &registryv1.ThreadRef{AgentId: "a1", ThreadId: id}
		calls := map[string]func() error{
			"Ensure": func() error {
				_, err := w.Threads.EnsureThread(t.Context(), &registryv1.EnsureThreadRequest{Thread: ref})
				return err
			},
			"Peek": func() error {
				_, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: ref})
				return err
			},
			"Pop": func() error {
				_, err := w.Threads.PopEvents(t.Context(), &registryv1.PopEventsRequest{Thread: ref, Consumer: "c"})
				return err
			},
			"Ack": func() error {
				_, err := w.Threads.AckEvents(t.Context(), &registryv1.AckEventsRequest{Thread: ref, Consumer: "c", Id: 1})
				return err
			},
			"Subscribe": func() error {
				_, err := w.Threads.Subscribe(t.Context(), &registryv1.SubscribeRequest{Thread: ref, Consumer: "c", Handler: "h"})
				return err
			},
			"Get": func() error {
				_, err := w.Threads.GetThread(t.Context(), &registryv1.GetThreadRequest{Thread: ref})
				return err
			},
			"GetMemory": func() error {
				_, err := w.Turns.GetMemory(t.Context(), &registryv1.GetMemoryRequest{AgentId: "a1", ThreadId: id})
				return err
			},
			"RetryDelivery": func() error {
				_, err := w.Deliveries.RetryDelivery(t.Context(), &registryv1.RetryDeliveryRequest{AgentId: "a1", ThreadId: id, EventId: 1})
				return err
			},
		}
		for name, call := range calls {
			err := call()
			if err == nil {
				t.Errorf("%s of %.40q is no error", name, id)
				continue
			}
			if f := fault.From(err); f.Code != codes.InvalidArgument && f.Code != codes.NotFound {
				t.Errorf("%s of %.40q: %v %s", name, id, f.Code, f.What)
			}
			healthy(t, w, log, name+" of "+id)
		}
	}
}

// F18: when the engine has no memory, the caller waits and tries again; the agent is well.
func TestNoMemoryIsOfOneCall(t *testing.T) {
	var none atomic.Bool
	log := &lines{}
	o := backendtest.Options{
		Home: filepath.Join(t.TempDir(), "h"), Change: func(d *registry.Deps) { d.Logger = slog.New(slog.NewTextHandler(log, nil)) },
		Connect: func(path string) (conn.Conn, error) {
			if none.Load() {
				return nil, &conn.Error{Code: sqlite3.SQLITE_NOMEM, Text: "out of memory"}
			}
			return conn.Open(path)
		},
	}
	w := start(t, o, registry.Config{})
	w.Create("a1")
	w.Stop()
	none.Store(true)
	w = start(t, o, registry.Config{})
	_, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "bob", "too early", ""))
	if err == nil {
		t.Fatal("stored without memory")
	}
	w.Full("no memory", err, fault.Overloaded)
	healthy(t, w, log, "no memory")
	none.Store(false)
	w.Push("a1", "bob", "hello", "")
	w.Answer("a1", "hi")
	healthy(t, w, log, "memory again")
}
