package registry_test

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S1-41: the first decision of hooks about a message stands, is on record before anything is sent, and goes with each
// later try, also when the settings have no hook any more. Without a lease none is recorded.
func TestDecisionStands(t *testing.T) { backendtest.Each(t, testDecisionStands) }

func testDecisionStands(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "k1")
	w.Answer("a1", "hi bob")
	const thread = "threads/peers/main-bob"
	ctx := backendtest.Under(t.Context(), w.Due(backendtest.KindDeliver, "d1", time.Minute)[0].GetLease())
	begin := func() *registryv1.BeginDeliveryResponse {
		r, err := w.Deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: "a1", ThreadId: thread})
		return backendtest.Must(t, r, err)
	}
	first := begin()
	if first.GetDecision() != nil || len(first.GetHooks()) != 0 || first.GetSessionKey() != "" {
		t.Errorf("%v", first)
	}
	text := "changed"
	in := &registryv1.DecideDeliveryRequest{
		AgentId: "a1", ThreadId: thread, EventId: first.GetEvent().GetId(), Key: first.GetKey(), Decision: &registryv1.HookDecision{Hook: "guard", Text: &text},
	}
	if _, err := w.Deliveries.DecideDelivery(t.Context(), in); err == nil {
		t.Error("a decision is recorded without a lease")
	}
	r, err := w.Deliveries.DecideDelivery(ctx, in)
	if d := backendtest.Must(t, r, err).GetDecision(); d.GetText() != text || d.GetHook() != "guard" {
		t.Errorf("%v", d)
	}
	in.Decision = &registryv1.HookDecision{Hook: "other", Cancel: true}
	r, err = w.Deliveries.DecideDelivery(ctx, in)
	if d := backendtest.Must(t, r, err).GetDecision(); d.GetText() != text || d.GetCancel() {
		t.Errorf("the second decision: %v", d)
	}
	if d := begin().GetDecision(); d.GetText() != text || d.GetHook() != "guard" || d.GetCancel() {
		t.Errorf("the next try: %v", d)
	}
}
