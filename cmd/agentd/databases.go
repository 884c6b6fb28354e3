package main

import (
	"slices"

	"github.com/theclaw/agents/internal/reference"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// databases are the URLs that the registry shares with others; none: it is alone.
func (e *env) databases() ([]string, error) {
	given := e.dsns
	if len(given) == 0 {
		s, err := e.homeDir.Storage()
		if err != nil {
			return nil, err
		}
		given = s.DSNs
	}
	urls, err := reference.Databases(e.getenv, given)
	for _, u := range urls {
		if !slices.Contains(given, u) {
			e.redactor.Add(u) // it may hold a password
		}
	}
	return urls, err
}

// safe are the calls of workers that are made again, at another registry if there is
// one, when theirs is gone: what they store has a key, a token or a state that tells the
// repeat. BeginTurn, BeginDelivery and FinishDelivery count tries and are not among them.
var safe = []string{
	registryv1.LeaseService_AcquireDueLease_FullMethodName, registryv1.LeaseService_AcquireLease_FullMethodName,
	registryv1.LeaseService_RenewLease_FullMethodName, registryv1.LeaseService_ReleaseLease_FullMethodName, registryv1.LeaseService_ListLeases_FullMethodName,
	registryv1.TurnService_OpenBatch_FullMethodName, registryv1.TurnService_RecordStep_FullMethodName, registryv1.TurnService_FinishTurn_FullMethodName,
	registryv1.TurnService_WithdrawTurn_FullMethodName, registryv1.TurnService_RecordCompaction_FullMethodName, registryv1.TurnService_GetMemory_FullMethodName,
	registryv1.TurnService_GetTurn_FullMethodName, registryv1.TurnService_ListTurns_FullMethodName,
	registryv1.ThreadService_PeekEvents_FullMethodName, registryv1.ThreadService_GetThread_FullMethodName, registryv1.ThreadService_ListThreads_FullMethodName,
	registryv1.AgentService_GetAgent_FullMethodName, registryv1.AgentService_ListAgents_FullMethodName, registryv1.AgentService_GetAgentStatus_FullMethodName,
	registryv1.AgentService_ReadAgentFile_FullMethodName, registryv1.AgentService_GetAgentConfig_FullMethodName,
	registryv1.ApprovalService_RequestApproval_FullMethodName, registryv1.DeliveryService_ListDeliveries_FullMethodName,
}
