package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S3-103: the line about the usage of a turn counts every step of it, also those that were recorded before the registry was
// started again and the one that is written with the reply. It has no cost where tokens come from the cache, which have no
// price. A reply through no account, and one of a turn that used nothing, has none.
func TestUsageFooter(t *testing.T) { backendtest.Each(t, testUsageFooter) }

func testUsageFooter(t *testing.T, o backendtest.Options) {
	const home = "reply: {usage_footer: full}\nprice: {input_cents: 300, output_cents: 1500}\nchannels:\n  tg: {type: telegram, token: \"env:TG\", dm: open}\n"
	const ofAccount, ofProgram = "external:telegram:tg:dm:7:bob", "external:telegram:main:dm:7:bob"
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, home)
	used := func(key, model string, in, cached, out int64) *registryv1.Step {
		return &registryv1.Step{
			Kind: registryv1.StepKind_STEP_KIND_MODEL, Key: key, Name: model, State: registryv1.StepState_STEP_STATE_DONE,
			Result: []byte(`{}`), Usage: &registryv1.Usage{Input: in, CachedInput: cached, Output: out},
		}
	}
	for _, c := range []struct {
		name, source  string
		restart, used bool
		cached        int64
		want          string
	}{
		{"in one process", ofAccount, false, true, 40, "Usage: 1100 tokens in (40 from the cache), 25 out, `work/m2`"},
		{"started again", ofAccount, true, true, 40, "Usage: 1100 tokens in (40 from the cache), 25 out, `work/m2`"},
		{"nothing from the cache", ofAccount, false, true, 0, "Usage: 1100 tokens in, 25 out, 0.37 cents, `work/m2`"},
		{"nothing from the cache, started again", ofAccount, true, true, 0, "Usage: 1100 tokens in, 25 out, 0.37 cents, `work/m2`"},
		{"of another source", ofProgram, false, true, 40, ""},
		{"nothing used", ofAccount, false, false, 0, ""},
	} {
		p, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: "inbox"}, Events: []*registryv1.NewEvent{{Source: c.source, Type: "message", Content: `{"text":"x"}`}},
		})
		backendtest.Must(t, p, err)
		due := w.Due(backendtest.KindRun, "r1", 0)
		ctx := backendtest.Under(t.Context(), due[0].GetLease())
		b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "main"})
		e := backendtest.Must(t, b, err).GetEvents()[0]
		begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "main", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
		backendtest.Must(t, begun, err)
		end := &registryv1.FinishTurnRequest{
			AgentId: "main", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "hi",
		}
		if c.used {
			step, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{
				AgentId: "main", ThreadId: e.GetThreadId(), Key: e.GetKey(), Steps: []*registryv1.Step{used("model:1", "work/m1", 100, c.cached, 5)},
			})
			backendtest.Must(t, step, err)
			end.Steps = []*registryv1.Step{used("model:2", "work/m2", 1000, 0, 20)}
		}
		lease := due[0].GetLease()
		if c.restart {
			w.Stop()
			w = o.Start(t, registry.Config{})
		}
		fin, err := w.Turns.FinishTurn(backendtest.Under(t.Context(), lease), end)
		id := backendtest.Must(t, fin, err).GetReplyEventId()
		page, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: e.GetThreadId()}, AfterId: id - 1, Limit: 1,
		})
		var got struct {
			Text   string `json:"text"`
			Footer string `json:"usage_footer"`
		}
		if err := json.Unmarshal([]byte(backendtest.Must(t, page, err).GetEvents()[0].GetContent()), &got); err != nil {
			t.Fatal(err)
		}
		if got.Text != "hi" || got.Footer != c.want {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
		w.Release(lease)
	}
}
