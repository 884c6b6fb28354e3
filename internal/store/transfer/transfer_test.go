package transfer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/store/transfer"
	"github.com/theclaw/agents/internal/thread"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func anyLease(string, uint64) error { return nil }

// world is a home and a database.
type world struct {
	home *agentdir.Home
	pg   *postgres.Engine
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	var err error
	w.home, err = agentdir.OpenHome(filepath.Join(t.TempDir(), "home"))
	ok(t, err)
	w.pg, err = postgres.New(t.Context(), postgres.Options{DSN: pgtest.Database(t), Live: anyLease})
	ok(t, err)
	t.Cleanup(func() {
		if err := errors.Join(w.home.Close(), w.pg.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) move(agent string, yes bool) transfer.Move {
	return transfer.Move{Home: w.home, Pool: w.pg.Pool(), Agent: agent, Confirm: func(transfer.Report) bool { return yes }}
}

// lite answers the engine of the home for a while.
func (w *world) lite(t *testing.T, use func(e store.Engine)) {
	t.Helper()
	e := sqlite.New(sqlite.Options{Live: anyLease, Path: func(r store.Ref) (string, error) { return filepath.Join(w.home.AgentDir(r.Agent), r.Thread), nil }})
	use(e)
	ok(t, e.Close())
}

const (
	talk       = "threads/peers/x"
	sessionKey = "agent:alice:C:dm:x"
)

// question is one that has its answer.
func question(agent string) store.Question {
	at := time.UnixMilli(1764200000123)
	return store.Question{
		ID: "q2", Agent: agent, Thread: talk, Key: "k", Text: "which \x00?", Options: []string{"a", "b \x00"}, Peer: "external:c:alice", After: 3,
		State: store.QuestionAnswered, Answer: "b \x00", By: "owner", Requested: at, Expires: time.Now().Add(time.Hour).Truncate(time.Millisecond), Ended: time.Now().Truncate(time.Millisecond),
	}
}

// pins are tools of an MCP server.
func pins() []store.Pin {
	at := time.UnixMilli(1764200000123)
	return []store.Pin{
		{Server: "github", Tool: "a \x00", Reported: "{}", ReportedSHA: "1", Approved: "{}", ApprovedSHA: "1", Class: "read", By: "owner", At: at},
		{Server: "github", Tool: "b", Reported: "{}", ReportedSHA: "1", DeniedSHA: "1", Class: "effect", By: "owner", At: at},
	}
}

// cursor and pairing are of the account tg.
func cursor() store.Cursor {
	return store.Cursor{Account: "tg", Identity: "1", Name: "updates", Value: "42 \x00", At: time.UnixMilli(1764200000123)}
}

func pairing() store.Pairing {
	at := time.UnixMilli(1764200000123)
	return store.Pairing{Account: "tg", Peer: "1207 \x00", Type: "telegram", Name: "Bob", State: store.PairingApproved, Owner: true, CodeHash: "h", Expires: at, By: "owner", At: at, Messages: 2}
}

// live makes an agent and lets it live through most of what can happen to one.
func (w *world) live(t *testing.T, id string) {
	t.Helper()
	ctx := t.Context()
	_, err := w.home.Create(id, agentdir.Spec{Prepare: func(dir string) error {
		_, err := db.Create(filepath.Join(dir, "inbox"))
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "memory", "agent.md"), []byte("it rained\n"), 0o600),
			os.Mkdir(filepath.Join(dir, "memory", "past"), 0o700), os.WriteFile(filepath.Join(dir, "memory", "past", "thread-x.3.md"), []byte("it snowed\n"), 0o600),
			os.Mkdir(filepath.Join(dir, "workdir", "d"), 0o750), os.WriteFile(filepath.Join(dir, "workdir", "d", "tool.sh"), []byte("#!/bin/sh\n"), 0o700))
	}})
	ok(t, err)
	ok(t, os.Chmod(filepath.Join(w.home.AgentDir(id), "workdir", "d", "tool.sh"), 0o700)) // what is made here is narrowed
	h, err := homedb.Open(ctx, w.home.RegistryDB())
	ok(t, err)
	ok(t, h.Save(ctx, lease.Record{Resource: lease.AgentResource(id), Token: 7, Released: true}))
	ok(t, h.PutApproval(ctx, store.Approval{ID: "q1", Agent: id, Thread: talk, Key: "k", Kind: "exec", State: "pending", Expires: time.Now().Add(time.Hour)}, "", nil))
	if policy, err := h.ExecPolicy(ctx); err == nil && policy.Version == 0 {
		ok(t, h.PutExecPolicy(ctx, store.ExecPolicy{Version: 1, Body: []byte(`{"version":1,"defaults":{"security":"allowlist"},"agents":{"` + id + `":{"ask":"off","allowlist":[{"pattern":"/usr/bin/git"}]}}}`)}))
	}
	ok(t, h.PutQuestion(ctx, question(id), ""))
	ok(t, h.ChangePins(ctx, "github", func([]store.Pin) ([]store.Pin, error) { return pins(), nil }))
	ok(t, h.PutCursor(ctx, cursor(), nil))
	ok(t, h.ChangePairings(ctx, "tg", nil, func([]store.Pairing) ([]store.Pairing, error) { return []store.Pairing{pairing()}, nil }))
	ok(t, h.SaveUsage(ctx, []store.Used{{Day: time.Now().UTC().Format(time.DateOnly), Agent: id, Peer: "p", Messages: 2}}))
	ok(t, h.Close())
	run, send := store.Fence{Resource: lease.AgentResource(id), Token: 3}, store.Fence{Resource: lease.DeliverResource(id), Token: 2}
	th := store.Ref{Agent: id, Thread: talk}
	w.lite(t, func(e store.Engine) {
		var list []store.NewEvent
		for _, text := range []string{"one", "two \x00 \x01", "bad", "four", "five", "six"} {
			list = append(list, store.NewEvent{Source: "external:c:alice", Type: thread.TypeMessage, Content: text})
		}
		list[0].Origin = &store.Origin{
			Thread: talk, Key: sessionKey, Account: "work \x00", ProviderID: "17", Rev: 3, Command: `{"name":"new"}`, SentAt: time.UnixMilli(1764200000123), Cause: "schedule",
		}
		list[5].Origin = &store.Origin{Thread: talk, Key: sessionKey}
		_, err := e.Append(ctx, store.Inbox(id), list, store.AppendOptions{Key: "k"})
		ok(t, err)
		b, err := e.OpenBatch(ctx, id, run, store.OpenBatch{
			Limit: 10, Mode: "m", Claimed: func(context.Context, thread.Event, string, string) (bool, error) { return false, nil },
			Route: func(e thread.Event, _ string) (string, error) {
				if e.Content == "bad" {
					return "", errors.New("no such peer")
				}
				return talk, nil
			},
		})
		ok(t, err)
		_, err = e.Ensure(ctx, th, "c|x")
		ok(t, err)
		for i, p := range b.Events {
			begin := store.Begin{Event: p.Event, Key: p.Key, Tail: 5, Subscribe: true, Handler: "h", ReplyContext: "{}"}
			if i == 3 {
				begin.Members = []store.Member{{Event: b.Events[4].Event, Key: b.Events[4].Key}}
			}
			if i == 4 {
				break
			}
			if i > 0 { // the first one is older than sessions
				begin.Session = &store.BeginSession{Key: sessionKey}
			}
			begun, err := e.Begin(ctx, th, run, begin)
			ok(t, err)
			_, err = e.Record(ctx, th, run, store.Record{Key: p.Key, Records: map[string]string{"tool:1": "{}"}, Steps: []store.Step{
				{Seq: 1, Kind: store.StepModel, Key: "model:1", State: store.StepDone, Name: "p/m", RequestSHA256: []byte{1, 2}, Result: []byte("r\x00"), Usage: store.Usage{Input: 3, CacheWrite: 1}},
				{Seq: 2, Kind: store.StepTool, Key: "tool:1", State: store.StepDone, Class: store.ClassEffect, Arguments: "{\"a\":\"\\\\\"}", CallID: "c", Duration: time.Second, Asks: true, Summary: "exec \x00", IsError: true, External: i == 0},
			}})
			ok(t, err)
			_, err = e.Record(ctx, th, run, store.Record{Key: p.Key, Failed: &store.FailedTry{Class: "provider failed", Error: "busy \x00", Wait: time.Millisecond}})
			ok(t, err)
			if i == 3 {
				continue // still at it
			}
			fin, err := e.Finish(ctx, th, run, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: "re", Deliver: true, BootID: "b"})
			ok(t, err)
			_, err = e.Settle(ctx, id, run, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: talk, Fate: fin.Fate, OutboxHead: fin.OutboxHead, Session: begun.Session})
			ok(t, err)
			d, err := e.NextDelivery(ctx, th, send, store.NextDelivery{BootID: "b"})
			ok(t, err)
			_, err = e.FinishDelivery(ctx, th, send, store.FinishDelivery{EventID: d.Event.ID, Outcome: []string{store.OutcomeSent, store.OutcomeRejected, store.OutcomeFailed}[i], MaxAttempts: 3, Error: "e", Channel: "c"})
			ok(t, err)
		}
		title, pending := "Weather \x00", store.EpochNew
		s, err := e.PatchSession(ctx, th, store.SessionPatch{Title: &title, Pending: &pending, By: "owner"})
		ok(t, err)
		ok(t, e.NoteSession(ctx, th, s))
		_, err = e.Compact(ctx, th, run, store.Compaction{Mark: store.MemoryMark{Layer: "memory/x.md", Digested: 3, Base: "none", Text: "t"}, Decision: store.Decision{Key: "d", Content: "{}"}})
		ok(t, err)
		ok(t, e.CountCompaction(ctx, id, run, talk, 1))
		ok(t, e.Subscribe(ctx, th, store.Subscription{Consumer: "other", Handler: "o"}))
		_, err = e.Ack(ctx, th, "other", 2, false)
		ok(t, err)
		_, err = e.SetStarted(ctx, id, true, "h")
		ok(t, err)
	})
}

func (w *world) stop(t *testing.T, id string) {
	w.lite(t, func(e store.Engine) {
		_, err := e.SetStarted(t.Context(), id, false, "h")
		ok(t, err)
	})
}

// answers is what an engine says of an agent, as text. Tokens may have risen.
func answers(t *testing.T, e store.Engine, id string) string {
	t.Helper()
	ctx := t.Context()
	var out []any
	add := func(v any, err error) { t.Helper(); ok(t, err); out = append(out, v) }
	s, err := e.State(ctx, id)
	s.Fences = nil
	add(s, err)
	add(e.ListTurns(ctx, id, store.ListTurns{Limit: 100}))
	for n := range int64(6) {
		add(e.Turn(ctx, id, store.TurnQuery{InboxID: n + 1, Route: func(thread.Event, string) (string, error) { return talk, nil }}))
	}
	th := store.Ref{Agent: id, Thread: talk}
	for _, r := range []store.Ref{store.Inbox(id), th} {
		add(e.Info(ctx, r))
		add(e.Read(ctx, r, store.Query{Limit: 1000}))
		add(e.Memory(ctx, r, "memory/x.md", talk))
	}
	add(e.ListDeliveries(ctx, th, "", 0, 100))
	add(e.SumUsage(ctx, th, store.SumUsage{ByDay: true, ByRun: true}))
	add(e.Tuple(ctx, th))
	add(e.Session(ctx, th))
	sessions, err := e.ListSessions(ctx, id, store.ListSessions{Limit: 9, Folded: strings.ToLower(sessionKey)})
	for i := range sessions {
		if sessions[i].LastAt.IsZero() {
			t.Errorf("session %+v was never active", sessions[i])
		}
		sessions[i].LastAt, sessions[i].Messages = time.Time{}, 0 // the time of the event, or of its fate; counted from the first session on, or all
	}
	add(sessions, err)
	b, err := json.Marshal(out)
	ok(t, err)
	return strings.ReplaceAll(string(b), `"Result":""`, `"Result":null`)
}

// files is a directory as text.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	ok(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		b.WriteString(strings.TrimPrefix(path, dir) + ":" + agentdir.Version(data) + "\n")
		return err
	}))
	return b.String()
}

// A migrate-store there and back has the same hashes and the same answers,
// and the source is as it was until it is confirmed.
func TestThereAndBack(t *testing.T) {
	w := newWorld(t)
	w.live(t, "alice")
	ctx := t.Context()
	if _, err := w.move("alice", true).ToDatabase(ctx); !fault.Is(err, fault.LeaseHeld) {
		t.Fatalf("while it is started: %v", err)
	}
	w.stop(t, "alice")
	var was string
	w.lite(t, func(e store.Engine) { was = answers(t, e, "alice") })
	before := files(t, w.home.AgentDir("alice"))

	dry, err := w.move("alice", false).ToDatabase(ctx)
	ok(t, err)
	if dry.Moved || dry.Threads != 2 || dry.Events < 12 || files(t, w.home.AgentDir("alice")) != before {
		t.Errorf("not confirmed: %+v", dry)
	}
	if _, err := w.pg.State(ctx, "alice"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("not confirmed, and there: %v", err)
	}

	there, err := w.move("alice", true).ToDatabase(ctx)
	ok(t, err)
	if there.Digest != dry.Digest || !there.Moved || files(t, there.Kept) != before {
		t.Errorf("%+v", there)
	}
	if is := answers(t, w.pg, "alice"); is != was {
		t.Errorf("there:\n %s\nwas\n %s", is, was)
	}
	for _, r := range []store.Ref{store.Inbox("alice"), {Agent: "alice", Thread: talk}} {
		_, err := w.pg.VerifyChain(ctx, r)
		ok(t, err)
	}
	s, err := w.pg.State(ctx, "alice")
	ok(t, err)
	if s.Fences[lease.AgentResource("alice")] != 7 {
		t.Errorf("fences %v: a token that was granted would be again", s.Fences)
	}
	var run string
	ok(t, w.pg.Pool().QueryRow(ctx, "SELECT run FROM delivery WHERE agent_id = 'alice' ORDER BY event_id LIMIT 1").Scan(&run))
	if _, found := thread.KeyID(run); !found {
		t.Errorf("run of a reply: %q", run)
	}

	ok(t, os.Remove(w.home.RegistryDB())) // as in a home that has never seen the agent
	conf := func(from, to string) {
		t.Helper()
		_, err := w.pg.Pool().Exec(ctx, "UPDATE agent_file SET content = replace(convert_from(content, 'UTF8'), $1, $2)::bytea WHERE name = 'config.yaml'", from, to)
		ok(t, err)
	}
	conf("kind: user", "kind: user\ninbox:\n  path: box")
	_, err = w.move("alice", true).ToHome(ctx)
	if _, gone := os.Stat(w.home.AgentDir("alice")); !fault.Is(err, fault.ConfigInvalid) || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("an inbox elsewhere: %v, %v", err, gone)
	}
	conf("kind: user\ninbox:\n  path: box", "kind: user")
	dry, err = w.move("alice", false).ToHome(ctx)
	ok(t, err)
	if _, err := os.Stat(w.home.AgentDir("alice")); dry.Digest != there.Digest || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not confirmed: %+v, %v", dry, err)
	}
	back, err := w.move("alice", true).ToHome(ctx)
	ok(t, err)
	if back.Digest != there.Digest || !back.Moved || there.Workdir != 10 || back.Workdir != 10 {
		t.Errorf("%+v", back)
	}
	if info, err := os.Stat(filepath.Join(w.home.AgentDir("alice"), "workdir", "d", "tool.sh")); err != nil || info.Mode() != 0o700 {
		t.Errorf("of the working directory: %v, %v", info, err)
	}
	w.lite(t, func(e store.Engine) {
		if is := answers(t, e, "alice"); is != was {
			t.Errorf("back:\n %s\nwas\n %s", is, was)
		}
		sessions, err := e.ListSessions(ctx, "alice", store.ListSessions{Limit: 9})
		ok(t, err)
		if len(sessions) != 1 || sessions[0].Messages != 3 {
			t.Errorf("the list of sessions %+v, want one with 3 messages", sessions)
		}
		// Both sides hand out ids where the source stopped.
		out, err := e.Append(ctx, store.Inbox("alice"), []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "x"}}, store.AppendOptions{})
		ok(t, err)
		if out.IDs[0] != 7 {
			t.Errorf("next id %v", out.IDs)
		}
		_, err = e.(*sqlite.Engine).VerifyChain(ctx, store.Inbox("alice"))
		ok(t, err)
	})
	if _, err := w.pg.State(ctx, "alice"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("left in the database: %v", err)
	}
	h, err := homedb.Open(ctx, w.home.RegistryDB())
	ok(t, err)
	defer func() { ok(t, h.Close()) }()
	asked, err := h.Approvals(ctx, "", "alice", "", 9)
	ok(t, err)
	used, err := h.Usage(ctx, time.Now().UTC().Format(time.DateOnly))
	ok(t, err)
	if len(asked) != 1 || len(used) != 1 || used[0].Messages != 2 || asked[0].Kind != "exec" {
		t.Errorf("asked %+v, used %+v", asked, used)
	}
	stored, err := h.ExecPolicy(ctx)
	ok(t, err)
	policy, err := execpolicy.Parse(stored.Body)
	ok(t, err)
	if r := policy.Rules("alice"); r.Security != "allowlist" || r.Ask != "off" || len(policy.Agents["alice"].Allowlist) != 1 || stored.Version != 1 {
		t.Errorf("rules %+v of %s, version %d", r, stored.Body, stored.Version)
	}
	questions, err := h.Questions(ctx, "", "alice", "", 9)
	ok(t, err)
	want := question("alice")
	if len(questions) != 1 || questions[0].Answer != want.Answer || !slices.Equal(questions[0].Options, want.Options) || questions[0].Text != want.Text ||
		questions[0].After != want.After || !questions[0].Requested.Equal(want.Requested) {
		t.Errorf("questions %+v, want %+v", questions, want)
	}
	kept, err := h.Pins(ctx, "")
	ok(t, err)
	if !slices.EqualFunc(kept, pins(), func(a, b store.Pin) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("pins %+v, want %+v", kept, pins())
	}
	cursors, err := h.Cursors(ctx)
	ok(t, err)
	if !slices.Equal(cursors, []store.Cursor{cursor()}) {
		t.Errorf("cursors %+v, want %+v", cursors, cursor())
	}
	pairings, err := h.Pairings(ctx, "")
	ok(t, err)
	if !slices.Equal(pairings, []store.Pairing{pairing()}) {
		t.Errorf("pairings %+v, want %+v", pairings, pairing())
	}
	if _, err := w.move("alice", true).ToHome(ctx); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("again: %v", err)
	}
}

// movedAway is a world whose agent alice, with data of each kind, is in the database.
func movedAway(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.live(t, "alice")
	w.stop(t, "alice")
	_, err := w.move("alice", true).ToDatabase(t.Context())
	ok(t, err)
	return w
}

// The database keeps the tokens of the leases of an agent that moves away, as for one that is removed: a new agent of the
// name begins above them, so that no earlier holder is accepted.
func TestTokensStay(t *testing.T) {
	w, ctx := movedAway(t), t.Context()
	_, err := w.move("alice", true).ToHome(ctx)
	ok(t, err)
	var token int64
	var released bool
	ok(t, w.pg.Pool().QueryRow(ctx, "SELECT token, released FROM lease WHERE agent_id = 'alice' AND resource = 'agent/alice'").Scan(&token, &released))
	if token != 7 || !released {
		t.Errorf("token %d, released %v", token, released)
	}
	there, err := w.move("alice", true).ToDatabase(ctx)
	ok(t, err)
	if !there.Moved {
		t.Errorf("%+v", there)
	}
}

// A home that has the rows of an agent from before it moved away takes those of the database when it is back: what was
// used and answered there does not wait again, and a rule that was removed there permits nothing here.
func TestBackToOlderRows(t *testing.T) {
	w, ctx := movedAway(t), t.Context()
	for _, sql := range []string{
		"UPDATE approval SET state = 'used', decision = 'once', decided_by = 'owner'", "UPDATE question SET answer = 'a'",
		`UPDATE exec_policy SET version = 2, body = '{"version":1,"defaults":{"security":"allowlist"},"agents":{}}'`,
	} {
		_, err := w.pg.Pool().Exec(ctx, sql)
		ok(t, err)
	}
	_, err := w.move("alice", true).ToHome(ctx)
	ok(t, err)
	h, err := homedb.Open(ctx, w.home.RegistryDB())
	ok(t, err)
	defer func() { ok(t, h.Close()) }()
	asked, err := h.Approvals(ctx, "", "alice", "", 9)
	ok(t, err)
	questions, err := h.Questions(ctx, "", "alice", "", 9)
	ok(t, err)
	if len(asked) != 1 || asked[0].State != "used" || asked[0].By != "owner" || len(questions) != 1 || questions[0].Answer != "a" {
		t.Errorf("approvals %+v and questions %+v are not those of the database", asked, questions)
	}
	stored, err := h.ExecPolicy(ctx)
	ok(t, err)
	policy, err := execpolicy.Parse(stored.Body)
	ok(t, err)
	if n := len(policy.Agents["alice"].Allowlist); n != 0 {
		t.Errorf("%d rules in %s, want none", n, stored.Body)
	}
	records, err := h.Load(ctx)
	ok(t, err)
	if len(records) != 1 || records[0].Token != 7 {
		t.Errorf("leases %+v, want the token 7", records)
	}
}

// Killed between the two steps, the next run finds both sides the same and finishes;
// when they are not, it changes nothing.
func TestKilledBetween(t *testing.T) {
	w := newWorld(t)
	w.live(t, "alice")
	w.stop(t, "alice")
	ctx := t.Context()
	both := func() {
		t.Helper()
		r, err := w.move("alice", true).ToDatabase(ctx)
		ok(t, err)
		ok(t, os.Rename(r.Kept, w.home.AgentDir("alice"))) // as if it had not come to that
	}
	both()
	both() // finished by the next run, and killed again
	r, err := w.move("alice", true).ToHome(ctx)
	ok(t, err)
	if _, err := w.pg.State(ctx, "alice"); !r.Moved || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%+v, %v", r, err)
	}
	both()
	_, err = w.pg.Append(ctx, store.Inbox("alice"), []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: "x"}}, store.AppendOptions{})
	ok(t, err)
	for _, move := range []func(context.Context) (transfer.Report, error){w.move("alice", true).ToDatabase, w.move("alice", true).ToHome} {
		if _, err := move(ctx); !fault.Is(err, fault.AgentExists) {
			t.Errorf("two that differ: %v", err)
		}
	}
}

// A source whose chain is broken is not moved.
func TestDamaged(t *testing.T) {
	w := newWorld(t)
	w.live(t, "alice")
	w.stop(t, "alice")
	ctx := t.Context()
	d, err := db.Open(ctx, filepath.Join(w.home.AgentDir("alice"), talk), db.Options{})
	ok(t, err)
	ok(t, d.Do(ctx, true, func(tx *db.Tx) error {
		_, err := tx.Exec("UPDATE events SET content = 'never said' WHERE id = 1")
		return err
	}))
	ok(t, d.Close())
	if _, err := w.move("alice", true).ToDatabase(ctx); !fault.Is(err, fault.DatabaseCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, err := w.pg.State(ctx, "alice"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("something is there: %v", err)
	}
}
