package gateway

import (
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// Policy is the access table of the gateway: it belongs to the owner.
func Policy() serve.Policy {
	owner := serve.Allow(rpc.Owner)
	return serve.Policy{
		gatewayv1.GatewayService_GetGatewayInfo_FullMethodName: owner,
		gatewayv1.GatewayService_ListChannels_FullMethodName:   owner,
		gatewayv1.GatewayService_RestartChannel_FullMethodName: owner,
		gatewayv1.GatewayService_TestChannel_FullMethodName:    owner,
	}
}
