package standalone_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

func (w *world) prune(agent string, apply bool) map[registryv1.PruneKind][2]int64 {
	w.Helper()
	out := map[registryv1.PruneKind][2]int64{}
	for token := ""; ; {
		r, err := w.Agents.PruneAgent(w.Context(), &registryv1.PruneAgentRequest{AgentId: agent, OlderThan: backendtest.DurationOf(30 * 24 * time.Hour), Apply: apply, PageSize: 1, PageToken: token})
		for _, s := range backendtest.Must(w.T, r, err).GetSums() {
			sum := out[s.GetKind()]
			out[s.GetKind()] = [2]int64{sum[0] + s.GetRemoved(), sum[1] + s.GetKept()}
		}
		if token = r.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// sound checks the invariants of the whole home (I1 to I18).
func (w *world) sound() {
	w.Helper()
	found, _, err := invariant.Check(w.Context(), layout.At(w.Home), invariant.Options{Live: true})
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range found {
		w.Error(f)
	}
}

// What is old and needed by nobody goes; a retry, a waiting caller, a delivery and
// the checks of RELIABILITY 6 find everything they look for.
func TestPrune(t *testing.T) {
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	peer, inbox := filepath.Join(w.Home, "agents/a1/threads/peers/main-bob"), filepath.Join(w.Home, "agents/a1/inbox")
	thread := "threads/peers/main-bob"
	w.Push("a1", "bob", "old, answered", "k1")
	batch := &registryv1.PushEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, IdempotencyKey: "k2"}
	for i := range 3 {
		batch.Events = append(batch.Events, backendtest.PushRequest("a1", "bob", fmt.Sprint("one of many ", i), "").GetEvents()...)
	}
	backendtest.Must(t, backendtest.Must2(w.Threads.PushEvents(t.Context(), batch)), nil)
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	w.Deliver("a1", thread)
	w.Push("a1", "bob", "old, dead", "k5")
	w.Toil("a1", registryv1.Fate_FATE_DEAD)
	old := func() { // everything until now is forty days old
		at := time.Now().AddDate(0, 0, -40).UnixMilli()
		foreign(t, inbox, "UPDATE x_fate SET at = ?", at)
		foreign(t, peer, "UPDATE x_turn SET finished_at = ? WHERE state = 'done'", at)
	}
	old()
	w.Push("a1", "bob", "old, answered, not delivered", "k6")
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	old()
	w.Push("a1", "bob", "new", "k7")
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	for name, dir := range map[string]string{"events-20200101-000000.jsonl": peer, "events-20200102-000000.jsonl": peer, "agent-20200101-000000.log": filepath.Join(w.Home, "agents/a1/logs"), "thread-20200101-000000.log": filepath.Join(inbox, "logs")} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}

	// Of four replied and delivered turns go one answer and one tool each; their
	// last answers stay, and all three steps of the dead and of the undelivered one.
	want := map[registryv1.PruneKind][2]int64{
		registryv1.PruneKind_PRUNE_KIND_RESULTS: {8, 4 + 3 + 3},
		registryv1.PruneKind_PRUNE_KIND_KEYS:    {3, 1}, // k1, k2 and k6; k5 is a dead letter
		registryv1.PruneKind_PRUNE_KIND_LINES:   {1, 1},
		registryv1.PruneKind_PRUNE_KIND_LOGS:    {2, 0},
	}
	compare := func(what string, got, want map[registryv1.PruneKind][2]int64) {
		t.Helper()
		for kind, n := range want {
			if got[kind] != n {
				t.Errorf("%s: %v: removed and kept %v, want %v", what, kind, got[kind], n)
			}
		}
	}
	compare("counted", w.prune("a1", false), want)
	compare("counted again", w.prune("a1", false), want)
	compare("applied", w.prune("a1", true), want)
	for kind, n := range want {
		want[kind] = [2]int64{0, n[1]}
	}
	compare("then", w.prune("a1", false), want)
	w.sound()

	turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
	steps := backendtest.Must(t, turn, err).GetTurn().GetSteps()
	if len(steps) != 3 || len(steps[0].GetResult()) > 0 || len(steps[1].GetResult()) > 0 || steps[1].GetArguments() != "" || string(steps[2].GetResult()) != `{"text":"done"}` {
		t.Errorf("steps %v", steps)
	}
	used, err := w.Turns.SumUsage(t.Context(), &registryv1.SumUsageRequest{AgentId: "a1"})
	if s := backendtest.Must(t, used, err).GetSums(); len(s) != 1 || s[0].GetAnswers() != 14 || s[0].GetUsage().GetInput() != 42 {
		t.Errorf("usage %v", s)
	}
	for key, known := range map[string]bool{"k1": false, "k5": true, "k6": false, "k7": true} {
		text := map[string]string{"k1": "old, answered", "k5": "old, dead", "k6": "old, answered, not delivered", "k7": "new"}[key]
		if r := w.Push("a1", "bob", text, key); r.GetDuplicate() != known {
			t.Errorf("%s: duplicate is %v", key, r.GetDuplicate())
		}
	}
	if r, err := w.Threads.PushEvents(t.Context(), batch); backendtest.Must(t, r, err).GetDuplicate() || len(r.GetEventIds()) != 3 {
		t.Errorf("the batch is %v", r)
	}
	retried, err := w.Turns.RetryTurn(t.Context(), &registryv1.RetryTurnRequest{AgentId: "a1", InboxId: 5})
	backendtest.Must(t, retried, err)
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	w.sound()
	left, err := filepath.Glob(filepath.Join(peer, "events-*.jsonl"))
	if err != nil || !slices.Equal(left, []string{filepath.Join(peer, "events-20200102-000000.jsonl")}) {
		t.Errorf("left %q, %v", left, err)
	}
	if _, err := w.Agents.PruneAgent(t.Context(), &registryv1.PruneAgentRequest{AgentId: "a1", OlderThan: backendtest.DurationOf(24 * time.Hour)}); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("a day: %v", err)
	}
}

// Media go an hour after they were written unless something refers to them: the result of a step at any age, a message that
// waits at any age, and an event that is not older than what else goes.
func TestPruneMedia(t *testing.T) {
	w := start(t, backendtest.Options{Home: t.TempDir()}, registry.Config{})
	w.Create("a1")
	dir := filepath.Join(w.Home, "agents/a1")
	put := func(data string) (sum string) {
		t.Helper()
		sum = fmt.Sprintf("%x", sha256.Sum256([]byte(data)))
		out, err := w.Media.WriteMedia(t.Context())
		backendtest.Must(t, 0, err)
		backendtest.Must(t, 0, out.Send(&registryv1.WriteMediaRequest{
			AgentId: "a1", Media: &registryv1.Media{Sha256: sum, Mime: "image/png", Size: int64(len(data))}, Data: []byte(data),
		}))
		r, err := out.CloseAndRecv()
		backendtest.Must(t, r, err)
		return sum
	}
	list := map[string]bool{} // hash -> stays
	refer := func(peer, data string) {
		w.Push("a1", peer, "look", "")
		w.Reply("a1", "sha256:"+put(data))
		w.Deliver("a1", "threads/peers/main-"+peer)
	}
	refer("bob", "in a new event")
	refer("carol", "in an old event")
	w.Push("a1", "dave", "sha256:"+put("in a message that waits"), "")
	list[put("in a new event")], list[put("in an old event")], list[put("in nothing")], list[put("in a message that waits")] = true, false, false, true
	at := time.Now().AddDate(0, 0, -40)
	foreign(t, filepath.Join(dir, "inbox"), "UPDATE x_media SET at = ?", at.UnixMilli())
	list[put("in nothing yet")] = true
	carol := filepath.Join(dir, "threads/peers/main-carol")
	foreign(t, carol, "UPDATE events SET created_at = ?", at.UTC().Format("2006-01-02T15:04:05.000Z"))
	foreign(t, carol, "UPDATE x_step SET result = NULL") // as pruned
	foreign(t, filepath.Join(dir, "inbox"), "UPDATE events SET created_at = '2020-01-01T00:00:00.000Z' WHERE source LIKE '%dave%'")
	for _, apply := range []bool{false, true, true} {
		want := [2]int64{2, 2}
		if len(list) == 0 { // the second time nothing is left to remove
			want[0] = 0
		}
		if got := w.prune("a1", apply)[registryv1.PruneKind_PRUNE_KIND_MEDIA]; got != want {
			t.Errorf("applied %v: removed and kept %v, want %v", apply, got, want)
		}
		for sum, stays := range list {
			if _, err := os.Stat(filepath.Join(dir, "media", sum[:2], sum)); (err == nil) != (stays || !apply) {
				t.Errorf("applied %v: media %s: %v", apply, sum, err)
			}
		}
		if apply {
			clear(list)
		}
	}
}
