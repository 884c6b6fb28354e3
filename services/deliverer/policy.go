package deliverer

import (
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
)

// Policy is the access table of the deliverer: it belongs to the owner.
func Policy() serve.Policy {
	owner, waits := serve.Allow(rpc.Owner), serve.Allow(rpc.Owner)
	waits.Waits = true
	return serve.Policy{
		delivererv1.DelivererService_DeliverBatch_FullMethodName:     waits,
		delivererv1.DelivererService_GetDelivererInfo_FullMethodName: owner,
	}
}
