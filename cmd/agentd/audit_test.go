//go:build proof

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// audit holds everything a load has left against the promises P1 and P3: the
// accounts, the threads, the files that tools wrote, and what reached the sink.
type audit struct {
	testing.TB
	*load
	figures

	sink *world.Sink
	ran  []string // idempotency keys of tools, in the order they ran for an agent
}

// check audits every message of the load once all have come to their end.
func (a *audit) check() {
	a.Helper()
	agents := map[string][]*message{}
	for _, m := range a.sent {
		a.figures.messages++
		if a.ended(m) {
			agents[m.agent] = append(agents[m.agent], m)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		a.settled(id)
		a.agent(id, agents[id])
	}
	a.invariants()
}

// settled waits for the acknowledgement of the last event (T8): its fate stands,
// and can be asked for, a moment earlier.
func (a *audit) settled(id string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 30*time.Second)
	defer cancel()
	for {
		r, err := world.Again(ctx, func(ctx context.Context) (*registryv1.GetAgentStatusResponse, error) {
			return a.site.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: id})
		})
		if err == nil && r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0 {
			return
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			finding(a, &a.stuck, "%s does not come to rest: %v %v", id, err, r)
			return
		}
	}
}

// invariants runs the checker over the databases themselves (RELIABILITY 6).
func (a *audit) invariants() {
	a.Helper()
	o := invariant.Options{Live: true, Drained: true, Runs: a.ran, History: &invariant.History{}, Sink: drill.Arrivals(a.sink), DSN: a.dsn}
	for _, m := range a.sent {
		if m.id > 0 {
			o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: m.agent, Key: m.key(), IDs: []int64{m.id}})
		}
	}
	for _, v := range violations(a, a.site.Home, o) {
		finding(a, &a.violations, "%s", v)
	}
}

// settled waits until no delivery of an agent is pending.
func settled(ctx context.Context, site *world.Site, agent string) error {
	for {
		a, err := site.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: agent})
		if err != nil || a.GetOutboundPending() == 0 {
			return err
		}
	}
}

// violations are what is wrong with a home, without warnings.
func violations(t testing.TB, home string, o invariant.Options) []invariant.Finding {
	t.Helper()
	found, _, err := invariant.Check(t.Context(), layout.At(home), o)
	if err != nil {
		t.Errorf("check invariants: %v", err)
	}
	return slices.DeleteFunc(found, func(f invariant.Finding) bool { return f.Severity != invariant.Violation })
}

// ended tells whether a message has the one account it should have (I1, I3).
func (a *audit) ended(m *message) bool {
	a.Helper()
	switch {
	case m.id == 0:
		finding(a, &a.lost, "%s was never accepted: %v", m.key(), m.err)
		return false
	case m.err != nil || m.turn.GetFate() == registryv1.Fate_FATE_UNSPECIFIED:
		finding(a, &a.stuck, "%s (inbox event %d) came to no end: %v %v", m.key(), m.id, m.err, m.turn)
		return false
	}
	if m.merged() || m.led() {
		return a.together(m)
	}
	want, delivered := registryv1.Fate_FATE_REPLIED, registryv1.DeliveryState_DELIVERY_STATE_SENT
	switch m.kind {
	case "fail":
		want, delivered = registryv1.Fate_FATE_DEAD, 0
	case "refuse":
		delivered = registryv1.DeliveryState_DELIVERY_STATE_DEAD
	}
	switch got := m.turn.GetFate(); {
	case got == want:
	case got == registryv1.Fate_FATE_DEAD: // accounted, but nothing was wrong with it
		finding(a, &a.dead, "%s is dead: %v", m.key(), m.turn)
	default:
		finding(a, &a.violations, "%s has the fate %v, want %v", m.key(), got, want)
	}
	if got := m.turn.GetDelivery().GetState(); m.turn.GetReplyEventId() > 0 && got != delivered {
		finding(a, &a.violations, "the reply to %s is %v, want %v: %v", m.key(), got, delivered, m.turn.GetDelivery())
	}
	return true
}

// together tells whether a message that was answered with others has its account:
// merged into one that came before and did not die, or the one that was answered.
func (a *audit) together(m *message) bool {
	a.Helper()
	if !m.merged() {
		if f := m.turn.GetFate(); f != registryv1.Fate_FATE_REPLIED && f != registryv1.Fate_FATE_DEAD {
			finding(a, &a.violations, "%s has led others and has the fate %v", m.key(), f)
		}
		return true
	}
	a.figures.merged++
	i := slices.IndexFunc(a.sent, func(o *message) bool {
		return o.turn.GetKey() == m.turn.GetLeader() && o.agent == m.agent && o.peer == m.peer
	})
	if i < 0 || a.sent[i].id >= m.id || a.sent[i].turn.GetFate() != registryv1.Fate_FATE_REPLIED || m.turn.GetReplyEventId() != 0 {
		finding(a, &a.lost, "%s was merged into %q, which did not answer it: %v", m.key(), m.turn.GetLeader(), m.turn)
	}
	return true
}

func (a *audit) agent(id string, ms []*message) {
	a.Helper()
	threads := map[string][]*message{}
	inbox := map[int64]bool{}
	for _, m := range ms {
		if inbox[m.id] {
			finding(a, &a.lost, "inbox event %d stands for two messages", m.id)
		}
		inbox[m.id] = true
		threads[m.turn.GetThreadId()] = append(threads[m.turn.GetThreadId()], m)
	}
	if n := len(a.site.Events(a, id, "inbox", "")); n != len(ms) {
		finding(a, &a.dup, "the inbox of %s holds %d events of %d messages", id, n, len(ms))
	}
	for _, thread := range slices.Sorted(maps.Keys(threads)) {
		a.thread(id, thread, threads[thread])
	}
	a.tools(id, ms)
}

// thread checks one conversation: every message recorded once (I2), answered once
// (I3), in its order (I11), and sent with one key (I9, I10).
func (a *audit) thread(id, thread string, ms []*message) {
	a.Helper()
	where := id + " " + thread
	slices.SortFunc(ms, func(x, y *message) int { return int(x.id - y.id) })
	var wantIn, wantOut, gotIn, gotOut, apologies []int64
	for _, m := range ms {
		wantIn = append(wantIn, m.turn.GetInboundEventId())
		if m.turn.GetReplyEventId() > 0 {
			wantOut = append(wantOut, m.turn.GetReplyEventId())
		}
	}
	for _, e := range a.site.Events(a, id, thread, "type = 'message'") {
		switch {
		case e.GetSource() != "self":
			gotIn = append(gotIn, e.GetId())
		case world.IsApology(e): // for a message that is dead
			apologies = append(apologies, e.GetId())
		default:
			gotOut = append(gotOut, e.GetId())
		}
	}
	if a.resets {
		n := len(a.site.Events(a, id, thread, "subtype = 'session'"))
		if want := a.asked[id+"/"+ms[0].peer]; n != want {
			finding(a, &a.violations, "%s: %d epochs were begun, %d were asked for", where, n, want)
		}
		a.figures.epochs += n
	}
	a.same(where+": messages", gotIn, wantIn)
	a.same(where+": replies", gotOut, wantOut)

	keys, events, plain := map[int64]string{}, map[string]int64{}, map[int64]int{}
	var first []int64
	for _, s := range a.sink.Arrivals(id) {
		if s.ThreadID != thread {
			continue
		}
		if !s.MaybeDuplicate {
			plain[s.EventID]++
		}
		if k, again := keys[s.EventID]; again {
			if k != s.Key {
				finding(a, &a.dup, "%s: event %d was sent with two keys", where, s.EventID)
			}
			// Which of two comes first is not ours to say, but one of them is flagged.
			if plain[s.EventID] > 1 {
				finding(a, &a.violations, "%s: event %d was sent again without the flag", where, s.EventID)
			}
			continue
		}
		if e, taken := events[s.Key]; taken {
			finding(a, &a.lost, "%s: events %d and %d were sent with one key", where, e, s.EventID)
		}
		keys[s.EventID], events[s.Key] = s.Key, s.EventID
		if !slices.Contains(apologies, s.EventID) {
			first = append(first, s.EventID)
		}
	}
	for _, id := range apologies {
		if keys[id] == "" {
			finding(a, &a.lost, "%s: the apology %d was not sent", where, id)
		}
	}
	var want []int64
	for _, m := range ms {
		if m.turn.GetReplyEventId() > 0 && m.turn.GetDelivery().GetState() == registryv1.DeliveryState_DELIVERY_STATE_SENT {
			want = append(want, m.turn.GetReplyEventId())
		}
	}
	a.same(where+": sent", first, want)
}

// same compares ids in their order: what is missing is lost, what is too much is
// a duplicate, what is out of order a violation.
func (a *audit) same(what string, got, want []int64) {
	a.Helper()
	if slices.Equal(got, want) {
		return
	}
	count := &a.violations
	switch {
	case len(got) < len(want):
		count = &a.lost
	case len(got) > len(want):
		count = &a.dup
	}
	finding(a, count, "%s: events %v, want %v", what, got, want)
}

// tools compares the journal with what tools have really done (I8).
func (a *audit) tools(id string, ms []*message) {
	a.Helper()
	ran := map[string]int{}
	var data []byte
	for _, home := range append(slices.Clone(a.homes), a.site.Home) {
		part, err := os.ReadFile(filepath.Join(home, "agents", id, "workdir", "ran.txt"))
		if err != nil && !os.IsNotExist(err) {
			a.Fatal(err)
		}
		data = append(data, part...)
	}
	for line := range strings.Lines(string(data)) {
		key, idempotency, _ := strings.Cut(strings.TrimSpace(line), " ")
		ran[key]++
		a.ran = append(a.ran, idempotency)
	}
	leader := map[string]*message{}
	for _, m := range ms {
		leader[m.turn.GetKey()] = m
	}
	for _, m := range ms { // what ran for a message that was merged, its leader's turn ran
		if l := leader[m.turn.GetLeader()]; m.merged() && l != nil {
			ran[l.key()] += ran[m.key()]
			delete(ran, m.key())
		}
	}
	for _, m := range ms {
		least, most := 0, 0
		for _, s := range m.turn.GetSteps() {
			if s.GetKind() != registryv1.StepKind_STEP_KIND_TOOL {
				continue
			}
			switch s.GetState() {
			case registryv1.StepState_STEP_STATE_DONE:
				least, most = least+1, most+1
			case registryv1.StepState_STEP_STATE_IN_DOUBT:
				a.inDoubt++
				most++
			default:
				finding(a, &a.violations, "%s has its fate and an open tool step: %v", m.key(), s)
			}
		}
		if m.kind == "run" && most != 1 && !m.led() && !m.merged() {
			finding(a, &a.violations, "%s has %d tool steps, want 1", m.key(), most)
		}
		switch n := ran[m.key()]; {
		case n < least:
			finding(a, &a.lost, "the tool of %s is done in the journal and ran %d times", m.key(), n)
		case n > most:
			finding(a, &a.dup, "the tool of %s ran %d times", m.key(), n)
		}
	}
}

// String is the figures in one line.
func (f *figures) String() string {
	return fmt.Sprintf("messages=%d epochs=%d in_doubt=%d dead=%d lost=%d dup=%d stuck=%d violations=%d",
		f.messages, f.epochs, f.inDoubt, f.dead, f.lost, f.dup, f.stuck, f.violations)
}
