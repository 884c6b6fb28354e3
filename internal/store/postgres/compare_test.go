package postgres_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/thread"
)

var ctx = context.Background()

// side is one engine with what its answers name by themselves.
type side struct {
	store.Engine
	agent string
	keys  map[int64]string       // of inbox events
	open  map[int64]thread.Event // inbox events, once seen
}

// pair is both, and what the sequence has come to.
type pair struct {
	sides   [2]*side
	pushed  int64
	threads map[int64]string // of inbox events that a batch has shown
	began   []int64          // claimed inbox events
	compact map[string]int64
}

var errs = []error{
	store.ErrNotFound, store.ErrNoConsumer, store.ErrConsumerExists, store.ErrLeaseLost, store.ErrMemoryMoved, store.ErrNoTurn,
	store.ErrNoDelivery, store.ErrNotDead, store.ErrInboxFull, store.ErrKeyReused, store.ErrStopped, store.ErrNoSession,
}

// both makes one call to both sides and fails when they differ.
func (m *pair) both(t *rapid.T, what string, call func(s *side) (any, error)) {
	var told [2]string
	for i, s := range m.sides {
		out, err := call(s)
		told[i] = s.plain(t, out)
		if err == nil {
			continue
		}
		told[i] += " error " + err.Error()
		for _, e := range errs {
			if errors.Is(err, e) {
				told[i] = "error " + e.Error()
			}
		}
	}
	if told[0] != told[1] {
		t.Fatalf("%s:\n sqlite   %s\n postgres %s", what, told[0], told[1])
	}
}

var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:[0-9.:+-]+Z?`)
	hash   = regexp.MustCompile(`[0-9a-f]{64}`)
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	key    = regexp.MustCompile(`U:(\d+):[0-9a-f]{16}`)
	epoch  = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`)
	wait   = regexp.MustCompile(`"(Wait|Waited)":[1-9]\d*`)
)

// plain is an answer as text, without what two engines cannot have in common.
func (s *side) plain(t *rapid.T, out any) string {
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	raw, err = json.Marshal(bare(v))
	if err != nil {
		t.Fatal(err)
	}
	text := uuid.ReplaceAllString(strings.ReplaceAll(string(raw), s.agent, "AGENT"), "U")
	text = epoch.ReplaceAllString(text, "E")
	text = hash.ReplaceAllString(moment.ReplaceAllString(text, "T"), "H")
	return wait.ReplaceAllString(key.ReplaceAllString(text, "U:$1"), `"$1":1`)
}

// bare shows what is inside of results, and takes what is empty for none.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if text, ok := x.(string); ok && k == "Result" {
				b, err := base64.StdEncoding.DecodeString(text)
				if x = string(b); err != nil || len(b) == 0 {
					x = nil
				}
			}
			v[k] = bare(x)
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = bare(v[i])
		}
	}
	return v
}

func (s *side) ref(thread string) store.Ref { return store.Ref{Agent: s.agent, Thread: thread} }

func (s *side) runner() store.Fence { return store.Fence{Resource: "agent/" + s.agent, Token: 1} }

func (s *side) sender() store.Fence { return store.Fence{Resource: "deliver/" + s.agent, Token: 1} }

// of answers an inbox event as a side has it.
func (s *side) of(id int64) (thread.Event, string) { return s.open[id], s.keys[id] }

func anyLease(string, uint64) error { return nil }

// TestSameAnswers makes random sequences of calls of the storage contract to SQLite and to
// PostgreSQL and compares every answer. What cannot be equal is removed first: uuids, epochs,
// hashes over times, and times. All else must be equal, to the last id, fate and count.
func TestSameAnswers(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "25"); err != nil { // each runs on real databases
			t.Fatal(err)
		}
	}
	url := pgtest.Database(t)
	pg, err := postgres.New(ctx, postgres.Options{DSN: url, Live: anyLease})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	lite := sqlite.New(sqlite.Options{Live: anyLease, Path: func(r store.Ref) (string, error) { return filepath.Join(root, r.Agent, r.Thread), nil }})
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(lite.Close(), pg.Close(), c.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &pair{threads: map[int64]string{}, compact: map[string]int64{}}
		for i, e := range []store.Engine{lite, pg} {
			m.sides[i] = &side{Engine: e, agent: fmt.Sprintf("agent%06d", n), keys: map[int64]string{}, open: map[int64]thread.Event{}}
		}
		if _, err := c.Exec(ctx, "INSERT INTO agent(agent_id) VALUES($1)", m.sides[0].agent); err != nil {
			rt.Fatal(err)
		}
		m.both(rt, "ensure inbox", func(s *side) (any, error) { return s.Ensure(ctx, store.Inbox(s.agent), "") })
		m.Push(rt)
		m.Open(rt)
		rt.Repeat(rapid.StateMachineActions(m))
	})
}
