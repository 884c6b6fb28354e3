package sqlite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// small are the tables with a few rows, which may be scanned.
var small = []string{"x_meta", "sqlite_sequence", "subscriptions", "s", "x_outbox", "x_fence", "x_dead", "x_route", "x_memory", "x_session", "CONSTANT", "1"}

// reasons for the other scans: a part of the plan or of the query that has one.
var reasons = []string{
	"USING INDEX x_delivery_open", "USING COVERING INDEX x_delivery_open", // holds open rows only
	"USING INDEX x_delivery_dead", "USING COVERING INDEX x_delivery_dead", // holds dead letters only
	"SELECT COUNT(*), COALESCE(MAX(id),0)",     // Info counts, and nothing hot calls it
	"ORDER BY id DESC LIMIT 1",                 // the last row
	"SELECT COUNT(*) FROM x_chain",             // fsck reads everything
	"JOIN events e ON e.id = c.event_id ORDER", // as above
	"AND recorded_at >= ? GROUP",               // a person asks what everything has cost
	"AND recorded_at >= ? ORDER",               // a person asks how full the context is
	"SCAN json_each VIRTUAL TABLE",             // the keys that were asked for
	"FROM x_sessions WHERE last_at >= ?",       // a person asks for a page of sessions
	"FROM x_fate WHERE thread = ?",             // a person changes a session that the list does not have
}

// The cost of a message must not grow with its thread: no statement that the
// engine ever prepared walks a table.
func TestNoQueryScans(t *testing.T) {
	e := engine(t, home(t, "a"))
	refs := everything(t, e)
	checked := 0
	for _, r := range refs {
		err := e.pool.View(t.Context(), r, func(tx *db.Tx) error {
			for _, q := range tx.Prepared() {
				if !strings.Contains(q, " FROM ") && !strings.HasPrefix(q, "UPDATE") && !strings.HasPrefix(q, "DELETE") || strings.HasPrefix(q, "EXPLAIN") {
					continue
				}
				checked++
				err := tx.Each("EXPLAIN QUERY PLAN "+q, make([]any, strings.Count(q, "?")), func(scan func(...any) error) error {
					var id, parent, unused int
					var detail string
					err := scan(&id, &parent, &unused, &detail)
					if table, scans := strings.CutPrefix(detail, "SCAN "); scans && !slices.Contains(small, strings.Fields(table)[0]) &&
						!slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(detail, r) || strings.Contains(q, r) }) {
						t.Errorf("%s\n in %s", detail, q)
					}
					if strings.Contains(detail, "TEMP B-TREE FOR ORDER BY") && !strings.Contains(q, "FROM x_step") && !strings.Contains(q, "FROM x_sessions") {
						t.Errorf("%s\n in %s", detail, q)
					}
					return err
				})
				if err != nil {
					return errors.Join(errors.New(q), err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if checked < 40 {
		t.Errorf("looked at %d statements only", checked)
	}
}

// everything calls each operation once and answers the threads it used.
func everything(t testing.TB, e *Engine) []store.Ref {
	t.Helper()
	ctx, in, th := context.Background(), store.Inbox("a"), store.Ref{Agent: "a", Thread: "threads/x"}
	run, send := store.Fence{Resource: "agent/a", Token: 1}, store.Fence{Resource: "deliver/a", Token: 1}
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	_, err := e.Ensure(ctx, th, "tuple")
	try(err)
	flt, err := filter.Parse("type = 'message' AND source = 'self'")
	try(err)
	for range 3 {
		_, err = e.Append(ctx, in, []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "x"}}, store.AppendOptions{Key: "k", MaxPending: 1, MaxPerPeer: 1})
		try(err)
	}
	_, err = e.Append(ctx, in, []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "o", Origin: &store.Origin{Thread: th.Thread, Key: "key"}}}, store.AppendOptions{Key: "o"})
	try(err)
	_, _, err = e.Pushed(ctx, in, "o")
	try(err)
	_, err = e.Origin(ctx, "a", 2)
	try(err)
	for _, q := range []store.Query{{Limit: 1}, {Limit: 1, Tail: true}, {Limit: 1, Upto: 5, Filter: flt}, {Limit: 1, Tail: true, Filter: flt}} {
		_, err = e.Read(ctx, in, q)
		try(err)
	}
	_, err = e.SetStarted(ctx, "a", true, "h")
	try(err)
	o := store.OpenBatch{
		Limit: 9, Mode: "m", Route: func(thread.Event, string) (string, error) { return th.Thread, nil },
		Claimed: func(context.Context, thread.Event, string, string) (bool, error) { return false, nil },
	}
	_, err = e.OpenBatch(ctx, "a", run, o)
	try(err)
	o.Mode = "n"
	b, err := e.OpenBatch(ctx, "a", run, o)
	try(err)
	p := b.Events[0]
	_, err = e.Begin(ctx, th, run, store.Begin{Event: p.Event, Key: p.Key, Tail: 3, Subscribe: true, Tuple: "t", Session: &store.BeginSession{Key: "key"}})
	try(err)
	step := store.Step{Seq: 1, Kind: store.StepTool, Key: "tool:1", State: store.StepDone, RequestSHA256: []byte{1}}
	_, err = e.Record(ctx, th, run, store.Record{Key: p.Key, Steps: []store.Step{step}, Records: map[string]string{"tool:1": "{}"}, Failed: &store.FailedTry{}})
	try(err)
	fin, err := e.Finish(ctx, th, run, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "{}", Deliver: true})
	try(err)
	_, err = e.Settle(ctx, "a", run, store.Settlement{InboxID: 1, Key: p.Key, Thread: th.Thread, Fate: store.FateDead, OutboxHead: 2})
	try(err)
	try(e.NoteSession(ctx, th, store.Session{Key: "other"}))
	s, err := e.PatchSession(ctx, th, store.SessionPatch{Title: &p.Key})
	try(err)
	for _, settled := range []*store.Session{&s, nil} {
		_, err = e.Settle(ctx, "a", run, store.Settlement{InboxID: 2, Key: "k", Thread: th.Thread, Fate: store.FateSilent, Session: settled})
		try(err)
	}
	for _, q := range []store.ListSessions{{Limit: 9}, {Limit: 9, Archived: true}, {Limit: 9, BeforeThread: "t"}} {
		_, err = e.ListSessions(ctx, "a", q)
		try(err)
	}
	found, err := e.ListSessions(ctx, "a", store.ListSessions{Limit: 9, Folded: "key"})
	if try(err); err == nil && len(found) != 1 {
		t.Errorf("sessions %+v", found)
	}
	_, err = e.NextDelivery(ctx, th, send, store.NextDelivery{})
	try(err)
	_, err = e.FinishDelivery(ctx, th, send, store.FinishDelivery{EventID: fin.ReplyID, Outcome: store.OutcomeRejected})
	try(err)
	_, err = e.Compact(ctx, th, run, store.Compaction{Mark: store.MemoryMark{Layer: "l", Digested: 1, Text: "t"}, Decision: store.Decision{Key: "c", Content: "{}", Turn: p.Key, Step: store.Step{Kind: store.StepCompaction, Key: "compact:1"}}})
	try(err)
	try(e.MemoryWritten(ctx, th, "l", 1))
	try(e.CountCompaction(ctx, "a", run, th.Thread, 1))
	_, _, err = e.UnseenThreads(ctx, "a", 9)
	try(err)
	_, err = e.Compact(ctx, in, run, store.Compaction{Mark: store.MemoryMark{Layer: agentLayer}, Threads: []store.MemoryMark{{Layer: th.Thread, N: 1}}})
	try(err)
	_, err = e.Memory(ctx, th, "l", "m")
	try(err)
	_, err = e.Tuple(ctx, th)
	try(err)
	_, err = e.ListDeliveries(ctx, th, store.DeliveryDead, 0, 9)
	try(err)
	_, err = e.ResolveDelivery(ctx, th, fin.ReplyID, "retried")
	try(err)
	try(e.MarkOutbox(ctx, "a", store.OutboxMark{Thread: th.Thread, Reopen: true}))
	try(e.ResetCrashes(ctx, th, []string{p.Key}))
	_, err = e.Turn(ctx, "a", store.TurnQuery{InboxID: 1, Route: func(thread.Event, string) (string, error) { return th.Thread, nil }})
	try(err)
	_, err = e.ListTurns(ctx, "a", store.ListTurns{Limit: 9, Fate: store.FateDead, Unresolved: true})
	try(err)
	_, err = e.SumUsage(ctx, th, store.SumUsage{ByDay: true})
	try(err)
	_, err = e.SumUsage(ctx, th, store.SumUsage{ByRun: true, Turns: []string{p.Key}})
	try(err)
	_, err = e.LastAnswer(ctx, th, time.Now())
	try(err)
	_, _, err = e.ResolveTurn(ctx, "a", 1, "dropped")
	try(err)
	_, err = e.State(ctx, "a")
	try(err)
	_, err = e.Info(ctx, th)
	try(err)
	_, err = e.VerifyChain(ctx, th)
	try(err)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return []store.Ref{in, th}
}
