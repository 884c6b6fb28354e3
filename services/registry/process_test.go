package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S4-64: the message about a process is answered where the message was that began it, also when that one was
// about a process itself; no other caller writes such messages, and a conversation sees its own processes.
func TestProcesses(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, o backendtest.Options) {
		w := o.Start(t, registry.Config{})
		w.Create("a1")
		w.Config("a1", "outbound", "[]")
		w.Push("a1", "bob", "build it", "")
		ctx := w.Leased("a1", "runner")
		// next begins the turn of the oldest message, and answers what a runner knows of it.
		next := func() (*registryv1.PendingEvent, *registryv1.BeginTurnResponse) {
			t.Helper()
			batch, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
			if err != nil || len(batch.GetEvents()) != 1 {
				t.Fatalf("%v %v", batch, err)
			}
			e := batch.GetEvents()[0]
			begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
			if err != nil || begun.GetOutcome() != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO {
				t.Fatalf("%v %v", begun, err)
			}
			return e, begun
		}
		record := func(e *registryv1.PendingEvent, id string, state registryv1.ProcessState) (*registryv1.Process, error) {
			out, err := w.Turns.RecordProcess(ctx, &registryv1.RecordProcessRequest{
				AgentId: "a1", Key: e.GetKey(), InboxId: e.GetEvent().GetId(), Process: &registryv1.Process{
					Id: id, ThreadId: e.GetThreadId(), StepKey: e.GetKey() + ":tool:1:1", State: state, Exit: 2, Tail: "last words",
				},
			})
			return out.GetProcess(), err
		}
		finish := func(e *registryv1.PendingEvent) {
			t.Helper()
			if _, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
				AgentId: "a1", ThreadId: e.GetThreadId(), Key: e.GetKey(), InboxId: e.GetEvent().GetId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "ok",
			}); err != nil {
				t.Fatal(err)
			}
		}
		first, begun := next()
		if _, err := record(first, "p-none", registryv1.ProcessState_PROCESS_STATE_EXITED); !fault.Is(err, fault.ProcessNotFound) {
			t.Errorf("the end of none: %v", err)
		}
		from := first
		for _, id := range []string{"p-first", "p-second"} { // the second is begun by the message about the first
			for _, state := range []registryv1.ProcessState{registryv1.ProcessState_PROCESS_STATE_STARTING, registryv1.ProcessState_PROCESS_STATE_RUNNING} {
				if p, err := record(from, id, state); err != nil || p.GetState() != state {
					t.Fatalf("%v %v", p, err)
				}
			}
			finish(from)
			if p, err := record(from, id, registryv1.ProcessState_PROCESS_STATE_EXITED); err != nil || p.GetExit() != 2 || p.GetEndedAt() == nil {
				t.Fatalf("%v %v", p, err)
			}
			e, about := next()
			var m struct{ Text, From string }
			if err := json.Unmarshal([]byte(e.GetEvent().GetContent()), &m); err != nil {
				t.Fatal(err)
			}
			if e.GetThreadId() != first.GetThreadId() || e.GetEvent().GetSource() != "internal:process:"+id+":a1" || m.From != first.GetEvent().GetSource() {
				t.Errorf("the message about %s: %v", id, e)
			}
			if !strings.HasPrefix(m.Text, "process "+id+" exited with code 2 after ") || !strings.HasSuffix(m.Text, "\nlast words") {
				t.Errorf("it says %q", m.Text)
			}
			if about.GetReplyContext() != begun.GetReplyContext() || about.GetReplyContext() == "" || about.GetSessionKey() != begun.GetSessionKey() {
				t.Errorf("answered in %s of %q, want %s of %q", about.GetReplyContext(), about.GetSessionKey(), begun.GetReplyContext(), begun.GetSessionKey())
			}
			if !proto.Equal(about.GetConfig(), begun.GetConfig()) {
				t.Errorf("with other settings: %v", about.GetConfig())
			}
			from = e
		}
		list, err := w.Turns.ListProcesses(ctx, &registryv1.ListProcessesRequest{AgentId: "a1", ThreadId: first.GetThreadId()})
		if err != nil || len(list.GetProcesses()) != 2 || list.GetProcesses()[0].GetTail() != "last words" {
			t.Errorf("listed: %v %v", list, err)
		}
		if _, err := w.Turns.ListProcesses(ctx, &registryv1.ListProcessesRequest{AgentId: "a1", ThreadId: "threads/peers/other", Id: "p-first"}); !fault.Is(err, fault.ProcessNotFound) {
			t.Errorf("of another conversation: %v", err)
		}
		list, err = w.Turns.ListProcesses(t.Context(), &registryv1.ListProcessesRequest{AgentId: "a1"})
		if err != nil || len(list.GetProcesses()) != 2 {
			t.Errorf("of the agent, without a lease: %v %v", list, err)
		}
		forged := backendtest.PushRequest("a1", "bob", "x", "")
		forged.Events[0].Source, forged.Events[0].Content = "internal:process:p-9:a1", `{"text":"x","from":"`+first.GetEvent().GetSource()+`"}`
		if _, err := w.Threads.PushEvents(t.Context(), forged); !fault.Is(err, fault.SourceForbidden) {
			t.Errorf("forged: %v", err)
		}
		finish(from)
		w.StopAgent("a1")
		if out := string(w.Export("a1", "bob")); !strings.Contains(out, "p-second exited") {
			t.Errorf("the messages about bob's processes are not exported:\n%.500s", out)
		}
	})
}
