package main

import (
	"context"

	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/transfer"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// database is the URL of the one that the registry shares with others; empty: it is alone.
func (e *env) database() (string, error) {
	given, dir := e.dsns, ""
	if len(given) == 0 {
		s, err := e.homeDir.Storage()
		if err != nil {
			return "", err
		}
		given, dir = s.DSNs, e.home
	}
	url, err := reference.Database(dir, e.getenv, given)
	if url != "" && url != given[0] {
		e.redactor.Add(url) // it may hold a password
	}
	return url, err
}

// openRegistry opens the storage engine, and makes the registry over it: one of several
// over a database, or the one of the home.
func (e *env) openRegistry(ctx context.Context, dsn string, cfg registry.Config, d registry.Deps) (*registry.Service, error) {
	if dsn == "" {
		e.useProcessors()
		return registry.NewStandalone(ctx, sqlite.New(sqlite.Options{Home: d.Home.RegistryDB()}), cfg, d)
	}
	engine, err := postgres.New(ctx, postgres.Options{DSN: dsn, Logger: d.Logger, Absent: func(err error) {
		d.Logger.Warn("the database does not answer: waiting for it, a minute at most", "error", err)
	}})
	if err != nil {
		return nil, err
	}
	d.Copies = transfer.Of(engine)
	return registry.NewCluster(ctx, engine, cfg, d)
}

// safe are the calls of workers that are made again, at another registry if there is
// one, when theirs is gone: what they store has a key, a token or a state that tells the
// repeat. BeginTurn, BeginDelivery and FinishDelivery count tries and are not among them.
var safe = []string{
	registryv1.LeaseService_AcquireDueLease_FullMethodName, registryv1.LeaseService_AcquireLease_FullMethodName,
	registryv1.LeaseService_RenewLease_FullMethodName, registryv1.LeaseService_ReleaseLease_FullMethodName, registryv1.LeaseService_ListLeases_FullMethodName,
	registryv1.TurnService_OpenBatch_FullMethodName, registryv1.TurnService_RecordStep_FullMethodName, registryv1.TurnService_FinishTurn_FullMethodName,
	registryv1.TurnService_WithdrawTurn_FullMethodName, registryv1.TurnService_RecordCompaction_FullMethodName, registryv1.TurnService_GetMemory_FullMethodName, registryv1.TurnService_GetTurnConfig_FullMethodName,
	registryv1.TurnService_GetTurn_FullMethodName, registryv1.TurnService_ListTurns_FullMethodName,
	registryv1.ThreadService_PeekEvents_FullMethodName, registryv1.ThreadService_GetThread_FullMethodName, registryv1.ThreadService_ListThreads_FullMethodName,
	registryv1.AgentService_GetAgent_FullMethodName, registryv1.AgentService_ListAgents_FullMethodName, registryv1.AgentService_GetAgentStatus_FullMethodName,
	registryv1.AgentService_ReadAgentFile_FullMethodName, registryv1.AgentService_GetAgentConfig_FullMethodName,
	registryv1.ApprovalService_RequestApproval_FullMethodName,
	registryv1.QuestionService_RequestQuestion_FullMethodName, registryv1.QuestionService_AnswerQuestion_FullMethodName, registryv1.DeliveryService_ListDeliveries_FullMethodName,
}
