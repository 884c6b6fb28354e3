package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S3-103: what was said in a voice message is an event of its conversation, which each later claim has, and the claim that
// goes on after a crash. Without such a message nothing is read.
func TestTranscripts(t *testing.T) { backendtest.Each(t, testTranscripts) }

func testTranscripts(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	if _, err := w.Agents.SetAgentConfig(t.Context(), &registryv1.SetAgentConfigRequest{AgentId: "a1", Key: "routing.default", Value: "per-agent"}); err != nil {
		t.Fatal(err)
	}
	file := func(peer string) string { return strings.Repeat(fmt.Sprintf("%x", peer[0]), 32) }
	push := func(peer, attachments string) {
		r, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
			Events: []*registryv1.NewEvent{{Source: fmt.Sprintf(backendtest.Telegram, peer, peer), Type: "message", Content: `{"text":"","attachments":[` + attachments + `]}`}},
		})
		backendtest.Must(t, r, err)
	}
	voice := func(peer string) {
		push(peer, `{"type":"voice","name":"voice.ogg","size":4,"media":"sha256:`+file(peer)+`"}`)
	}
	voice("ann")
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	ctx := backendtest.Under(t.Context(), due[0].GetLease())
	next := func() *registryv1.PendingEvent {
		b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
		list := backendtest.Must(t, b, err).GetEvents()
		return list[0]
	}
	begin := func(p *registryv1.PendingEvent) (*registryv1.BeginTurnResponse, string) {
		b, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
		var said []string
		for _, e := range backendtest.Must(t, b, err).GetTail() {
			if r, ok := thread.ParseTranscript(e.GetContent()); ok && e.GetSubtype() == thread.SubtypeTranscript {
				said = append(said, fmt.Sprint(r.Event, " ", r.Text+r.Error))
			}
		}
		return b, strings.Join(said, ", ")
	}
	record := func(p *registryv1.PendingEvent, n int, event int64, peer, text, why string) {
		key := fmt.Sprint("transcribe:", n)
		for _, state := range []registryv1.StepState{registryv1.StepState_STEP_STATE_INTENT, registryv1.StepState_STEP_STATE_DONE} {
			r, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: p.GetThreadId(), Key: p.GetKey(), Steps: []*registryv1.Step{{
				Seq: int32(n), Kind: registryv1.StepKind_STEP_KIND_TRANSCRIPT, Key: key, State: state, Name: "ears/whisper-1", IsError: why != "",
				Transcript: &registryv1.Transcript{EventId: event, Sha256: file(peer), Text: text, Error: why},
			}}})
			backendtest.Must(t, r, err)
		}
	}
	finish := func(p *registryv1.PendingEvent, fate registryv1.Fate) {
		r, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: fate, Text: "fine"})
		backendtest.Must(t, r, err)
	}

	p := next()
	begun, said := begin(p)
	if said != "" {
		t.Errorf("a first claim has %q", said)
	}
	annSaid := begun.GetInbound().GetId()
	finish(p, registryv1.Fate_FATE_ABORTED) // it was not transcribed
	voice("bob")
	p = next()
	begun, _ = begin(p)
	bobSaid := begun.GetInbound().GetId()
	record(p, 1, annSaid, "ann", "xyzzy-of-ann", "")
	record(p, 2, bobSaid, "bob", "", "out of time")
	want := fmt.Sprintf("%d xyzzy-of-ann, %d out of time", annSaid, bobSaid)
	if begun, said = begin(p); said != want || len(begun.GetSteps()) != 2 || begun.GetSteps()[0].GetTranscript() != nil {
		t.Errorf("a second claim has %q and %v", said, begun.GetSteps())
	}
	finish(p, registryv1.Fate_FATE_SILENT)
	push("bob", "")
	p = next()
	if _, said = begin(p); said != want {
		t.Errorf("the next turn has %q, want %q", said, want)
	}
	finish(p, registryv1.Fate_FATE_REPLIED)
	sums, err := w.Turns.SumUsage(t.Context(), &registryv1.SumUsageRequest{AgentId: "a1"})
	if got := backendtest.Must(t, sums, err).GetSums(); len(got) != 1 || got[0].GetModel() != "ears/whisper-1" || got[0].GetAnswers() != 1 {
		t.Errorf("usage %v", got)
	}
	w.Release(due[0].GetLease())
	w.Deliver("a1", p.GetThreadId())

	// What ann has said is erased with her message, although it was recorded in a turn of bob.
	if out := string(w.Export("a1", "ann")); !strings.Contains(out, "xyzzy-of-ann") || strings.Contains(out, "out of time") {
		t.Errorf("exported %s", out)
	}
	w.StopAgent("a1")
	r, err := w.Erase("a1", "ann", true)
	backendtest.Must(t, r, err)
	list, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: p.GetThreadId()}, Filter: "subtype = 'transcript'"})
	events := backendtest.Must(t, list, err).GetEvents()
	if len(events) != 2 || events[0].GetContent() != "[erased]" || !strings.Contains(events[1].GetContent(), "out of time") {
		t.Errorf("erased: %v", events)
	}
	if o.DSN == "" {
		searchFiles(t, o.Home, "xyzzy-of-ann")
	}
}
