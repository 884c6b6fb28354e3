//go:build proof

package soak_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// row is an event as the external tool reads it.
type row struct {
	id                    int64
	source, kind, content string
}

// outside is I18: the external tool, which knows nothing but the five columns of a
// table in a SQLite file, puts a message into an inbox, and then reads the same
// events as the registry's clients do.
func (l *life) outside(ctx context.Context, agent string, n int) {
	text := fmt.Sprintf("say: from outside %d %s", n, canaryOf(agent, "ext"))
	id, err := l.insert(ctx, agent, text)
	if err != nil {
		l.t.Errorf("push from outside: %v", err)
		return
	}
	l.note(invariant.Push{Agent: agent, IDs: []int64{id}})
	turn, err := l.fate(ctx, agent, id)
	if err != nil {
		l.t.Errorf("event %d of %s, from outside: %v", id, agent, err)
		return
	}
	l.foreign++
	for _, thread := range []string{"inbox", turn.GetThreadId()} {
		theirs, err := l.read(ctx, agent, thread)
		if err != nil {
			l.t.Errorf("read %s of %s from outside: %v", thread, agent, err)
			continue
		}
		ours, err := l.peek(ctx, agent, thread, int64(len(theirs)))
		if err != nil {
			l.t.Errorf("peek %s of %s: %v", thread, agent, err)
			continue
		}
		if !slices.Equal(theirs, ours[:min(len(ours), len(theirs))]) {
			l.report([]invariant.Finding{{
				Invariant: "I18", Agent: agent, Thread: thread, Severity: invariant.Violation,
				What: fmt.Sprintf("the external tool sees %d events, and they are not the %d that clients see", len(theirs), len(ours)),
			}})
		}
		if thread != "inbox" && !slices.ContainsFunc(theirs, func(r row) bool { return r.id == turn.GetReplyEventId() && r.source == "self" }) {
			l.report([]invariant.Finding{{
				Invariant: "I18", Agent: agent, Thread: thread, Severity: invariant.Violation, What: "the external tool does not see a reply",
			}})
		}
		l.checked("I18")
	}
}

func (l *life) open(agent, thread string) (*sql.DB, error) {
	path := filepath.Join(l.site.Home, "agents", agent, filepath.FromSlash(thread), "events.db")
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
}

func (l *life) insert(ctx context.Context, agent, text string) (int64, error) {
	db, err := l.open(agent, "inbox")
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	r, err := db.ExecContext(ctx, "INSERT INTO events(source,type,content) VALUES(?,'message',?)", world.Peer("ext"), world.Message(text))
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

func (l *life) read(ctx context.Context, agent, thread string) ([]row, error) {
	db, err := l.open(agent, thread)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT id, source, type, content FROM events ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []row
	for rows.Next() {
		var e row
		if err := rows.Scan(&e.id, &e.source, &e.kind, &e.content); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// peek reads at least n events of a thread as a client.
func (l *life) peek(ctx context.Context, agent, thread string, n int64) ([]row, error) {
	var out []row
	for after, more := int64(0), true; more && int64(len(out)) < n; {
		r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.PeekEventsResponse, error) {
			return l.site.Threads.PeekEvents(ctx, &registryv1.PeekEventsRequest{
				Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: thread}, AfterId: after, Limit: 1000,
			})
		})
		if err != nil {
			return nil, err
		}
		for _, e := range r.GetEvents() {
			out = append(out, row{e.GetId(), e.GetSource(), e.GetType(), e.GetContent()})
			after = e.GetId()
		}
		more = r.GetMore()
	}
	return out, nil
}
