package wire

import (
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

var deliveryStates = map[string]registryv1.DeliveryState{
	store.DeliveryPending: registryv1.DeliveryState_DELIVERY_STATE_PENDING,
	store.DeliverySending: registryv1.DeliveryState_DELIVERY_STATE_SENDING,
	store.DeliverySent:    registryv1.DeliveryState_DELIVERY_STATE_SENT,
	store.DeliveryDead:    registryv1.DeliveryState_DELIVERY_STATE_DEAD,
	store.DeliverySkipped: registryv1.DeliveryState_DELIVERY_STATE_SKIPPED,
}

// ReadDeliveryState is the stored word for a state; empty for all of them.
func ReadDeliveryState(d registryv1.DeliveryState) string { return keyOf(deliveryStates, d) }

var outcomes = map[registryv1.DeliveryOutcome]string{
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT:        store.OutcomeSent,
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_FAILED:      store.OutcomeFailed,
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_UNAVAILABLE: store.OutcomeUnavailable,
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_REJECTED:    store.OutcomeRejected,
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SKIPPED:     store.OutcomeSkipped,
	registryv1.DeliveryOutcome_DELIVERY_OUTCOME_PART:        store.OutcomePart,
}

// ReadOutcome is the stored word for what became of a send.
func ReadOutcome(o registryv1.DeliveryOutcome) string { return outcomes[o] }

// Delivery is a delivery as an answer carries it.
func Delivery(agentID string, d store.Delivery) *registryv1.Delivery {
	return &registryv1.Delivery{
		AgentId: agentID, ThreadId: d.Thread, EventId: d.EventID, Key: d.Key, State: deliveryStates[d.State],
		Attempts: int32(d.Attempts), Channel: d.Channel, ProviderId: d.ProviderID, Error: d.Error, MaybeDuplicate: d.MaybeDuplicate, Parts: int32(d.Parts),
		NextAt: stampOf(d.NextAt), CreatedAt: stampOf(d.CreatedAt), UpdatedAt: stampOf(d.UpdatedAt),
	}
}
