package migrate

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const bob = "external:tui:tui-main:dm:bob:bob"

// behind is a home in which the earlier agent has left four messages of its inbox, one of
// which is a record, and three replies to bob unsent: the first two long ago, the last
// one now. One reply to bob was sent.
func behind(t *testing.T, extra string) (h layout.Home, now string) {
	t.Helper()
	h, now = layout.At(filepath.Join(t.TempDir(), "home")), time.Now().UTC().Add(-time.Minute).Format("2006-01-02T15:04:05.000Z")
	dir := old(t, h, "e1", func(s string) string { return strings.Replace(s, "outbound: []", extra, 1) })
	insert := func(thread, at, source, kind, text string) {
		exec1(t, filepath.Join(dir, thread, "events.db"),
			"INSERT INTO events(created_at, source, type, content) VALUES('"+at+"', '"+source+"', '"+kind+"', '"+text+"')")
	}
	const long, peer = "2026-01-02T03:04:05.000Z", "threads/peers/tui-main-bob"
	conversation(t, dir, peer, "outbound", "agent deliver --thread "+filepath.Join(dir, peer)+" --consumer outbound", "'type = ''message'' AND source = ''self'''")
	insert("inbox", long, bob, "message", `{"text":"say: done"}`)
	exec1(t, filepath.Join(dir, "inbox/events.db"), "INSERT INTO consumer_progress VALUES('inbox', 1, '2026-01-02T03:04:05.000Z')")
	insert("inbox", long, bob, "message", `{"text":"say: old one"}`)
	insert("inbox", long, bob, "record", `{}`)
	insert("inbox", long, bob, "message", `{"text":"say: old two"}`)
	insert("inbox", now, bob, "message", `{"text":"say: new"}`)
	insert(peer, long, bob, "message", `{"text":"say: done"}`)
	const to = `,"reply_context":{"channel_type":"external","channel_id":"tui-main","peer_id":"bob","session_id":"bob"}}`
	insert(peer, long, "self", "message", `{"text":"sent"`+to)
	exec1(t, filepath.Join(dir, peer, "events.db"), "INSERT INTO consumer_progress VALUES('outbound', 2, '2026-01-02T03:04:05.000Z')")
	insert(peer, long, "self", "message", `{"text":"unsent one"`+to)
	insert(peer, long, "self", "message", `{"text":"unsent two"`+to)
	insert(peer, now, "self", "message", `{"text":"unsent new"`+to)
	return h, now
}

// R6, R5: what an earlier agent left undone is named by migrate and doctor, with how to
// skip it.
func TestWaiting(t *testing.T) {
	h, _ := behind(t, "outbound: []")
	said := examine(t, h)
	text, _ := run(t, h, "e1")
	for _, want := range []string{
		"e1: 3 messages wait and will be answered when the agent is started",
		"e1: 3 replies were not sent in 1 conversation and will be sent when the agent is started",
		"agentctl migrate e1 --skip-before TIME|all --apply", "the oldest is of 2026-01-02T03:04:05.000Z",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("migrate does not say %q:\n%s", want, text)
		}
		if !strings.Contains(said, want) {
			t.Errorf("doctor does not say %q:\n%s", want, said)
		}
	}
	r, _ := runJSON(t, h, "e1", "--skip-before", "24h")
	if len(r.Waiting) != 1 || r.Waiting[0].Messages != 3 || r.Waiting[0].SkipMessages != 2 || r.Waiting[0].SkipReplies != 2 || !r.Waiting[0].Starts {
		t.Errorf("dry run: %+v", r.Waiting)
	}
	// Nothing waits: nothing is said, and the exit code is that of the changes.
	h, _ = behind(t, "outbound: []")
	if _, code := run(t, h, "e1", "--apply", "--skip-before", "all"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if text, code := run(t, h, "e1"); code != 0 || strings.Contains(text, "wait") || strings.Contains(examine(t, h), "wait") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// R6: a line that is wrong is exit code 2, and nothing is done.
func TestSkipUsage(t *testing.T) {
	h, _ := behind(t, "outbound: []")
	before := tree(t, h)
	for _, args := range [][]string{
		{"e1", "--apply", "--skip-before", "yesterday"},
		{"e1", "--apply", "--skip-before", ""},
		{"e1", "--apply", "--skip-before", "-3h"},
		{"e1", "--apply", "--undo", "--skip-before", "all"},
		{"--apply", "--skip-before", "all"},
	} {
		if text, code := run(t, h, args...); code != 2 {
			t.Errorf("%q: exit code %d: %s", args, code, text)
		}
	}
	for path, was := range before {
		if now := tree(t, h)[path]; now != was {
			t.Errorf("%s changed", path)
		}
	}
}

// R6, R5: what was skipped is on record and is neither answered nor sent; what was not is,
// in its order, without a new message of that peer.
func TestSkip(t *testing.T) {
	sink := world.NewSink(t)
	h, _ := behind(t, sink.Config())
	for i, want := range []int64{2, 0} { // the second run finds nothing
		r, code := runJSON(t, h, "e1", "--apply", "--skip-before", "24h")
		var w int64
		if len(r.Waiting) == 1 {
			w = r.Waiting[0].SkipMessages + r.Waiting[0].SkipReplies
		}
		if code != 0 || w != 2*want || r.Waiting[0].Messages != 1 || r.Waiting[0].Replies != 1 {
			t.Errorf("run %d: exit code %d, %+v", i, code, r.Waiting)
		}
	}
	violations(t, h)

	w := world.Start(t, world.Options{Home: h.Path()})
	if turn := w.Await(t, "e1", 5); w.Reply(t, turn) != "new" {
		t.Errorf("the new one: %v", turn)
	}
	for id, fate := range map[int64]registryv1.Fate{
		1: registryv1.Fate_FATE_SILENT, 2: registryv1.Fate_FATE_DEAD, 3: registryv1.Fate_FATE_NOT_A_MESSAGE, 4: registryv1.Fate_FATE_DEAD,
	} {
		turn := w.Await(t, "e1", id)
		dead := fate == registryv1.Fate_FATE_DEAD
		if turn.GetFate() != fate || dead != strings.Contains(turn.GetError(), "--skip-before") || turn.GetReplyEventId() != 0 {
			t.Errorf("message %d: %v", id, turn)
		}
	}
	if list, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "e1", Fate: registryv1.Fate_FATE_DEAD, Unresolved: true}); err != nil || len(list.GetTurns()) != 0 {
		t.Errorf("dead letters: %v, %v", list, err)
	}
	arrive(t, sink, "unsent new", "new")
	w.Stop()
	violations(t, h)
}

// R6: a message that a turn has answered and whose fate is not recorded yet, as a crash
// leaves it, is not skipped: it would have two fates (I3).
func TestSkipLeavesTurnsAlone(t *testing.T) {
	h, _ := behind(t, "outbound: []")
	w := world.Start(t, world.Options{Home: h.Path()})
	w.Await(t, "e1", 5)
	w.Stop()
	inbox := filepath.Join(h.AgentDir("e1"), "inbox/events.db")
	exec1(t, inbox, "DELETE FROM x_fate WHERE inbox_id = 4; UPDATE x_ack SET id = 3 WHERE consumer = 'inbox'; UPDATE x_meta SET desired = 'stopped'")
	if text, code := run(t, h, "e1", "--apply", "--skip-before", "all"); code != 0 || strings.Contains(text, "leaves") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if n := one(t, inbox, "SELECT COUNT(*) FROM x_fate WHERE inbox_id = 4"); n != "0" {
		t.Error("the message has a fate")
	}
	w = world.Start(t, world.Options{Home: h.Path()})
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "e1"}); err != nil {
		t.Fatal(err)
	}
	if turn := w.Await(t, "e1", 4); w.Reply(t, turn) != "old two" {
		t.Errorf("the message: %v", turn)
	}
	w.Stop()
	violations(t, h)
}

// R5: replies that the earlier agent left unsent are sent at the start of the agent,
// without a message of that peer; those that are too old become dead letters.
func TestUnsentReplies(t *testing.T) {
	sink := world.NewSink(t)
	h, _ := behind(t, sink.Config())
	exec1(t, filepath.Join(h.AgentDir("e1"), "inbox/events.db"), "UPDATE consumer_progress SET last_acked_id = 5; DELETE FROM subscriptions")
	w := world.Start(t, world.Options{Home: h.Path()}) // stopped: nothing is done of itself
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "e1"}); err != nil {
		t.Fatal(err)
	}
	arrive(t, sink, "unsent new")
	list, err := w.Deliveries.ListDeliveries(t.Context(), &registryv1.ListDeliveriesRequest{AgentId: "e1", State: registryv1.DeliveryState_DELIVERY_STATE_DEAD})
	if err != nil || len(list.GetDeliveries()) != 2 {
		t.Errorf("dead letters: %v, %v", list, err)
	}
	w.Stop()
	if _, code := run(t, h, "e1", "--apply"); code != 0 { // the modes
		t.Errorf("exit code %d", code)
	}
	violations(t, h)
}

// arrive waits until the texts have arrived, and compares that nothing else has.
func arrive(t *testing.T, sink *world.Sink, want ...string) {
	t.Helper()
	await(t, sink, len(want))
	var got []string
	for _, a := range sink.Arrivals("e1") {
		got = append(got, a.Text)
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("arrived %q, want %q", got, want)
	}
}

// await returns when so many messages of e1 have arrived.
func await(t *testing.T, sink *world.Sink, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for len(sink.Arrivals("e1")) < n {
		select {
		case <-late:
			t.Fatalf("%d of %d arrived after a minute", len(sink.Arrivals("e1")), n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// violations checks the promises over the files.
func violations(t *testing.T, h layout.Home) {
	t.Helper()
	found, _, err := invariant.Check(t.Context(), h, invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Severity == invariant.Violation {
			t.Error(f)
		}
	}
}
