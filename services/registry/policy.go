package registry

import (
	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Policy is the access table of the registry. A method that is not here is
// refused, and a server with such a method does not start.
func Policy() serve.Policy {
	owner := serve.Allow(rpc.Owner)
	both := owner.To("runner", "deliverer")
	runner, deliverer, gateway := owner.To("runner"), owner.To("deliverer"), owner.To("gateway")
	waits := func(r serve.Rule) serve.Rule { r.Waits = true; return r }
	ends := func(r serve.Rule) serve.Rule { r.Waits, r.EndOnDrain = true, true; return r }
	p := serve.Policy{}
	add := func(d grpc.ServiceDesc, rule serve.Rule, methods ...string) {
		for _, m := range methods {
			p["/"+d.ServiceName+"/"+m] = rule
		}
	}
	add(registryv1.AgentService_ServiceDesc, owner, "CreateAgent", "StartAgent", "StopAgent", "BootstrapAgents", "WriteAgentFile", "SetAgentConfig", "ReadAgentLog")
	add(registryv1.AgentService_ServiceDesc, waits(owner), "BackupAgents", "RestoreAgents", "PruneAgent", "ExportPeer", "ErasePeer", "DeleteAgent")
	add(registryv1.AgentService_ServiceDesc, both, "GetAgent", "ListAgents", "ReadAgentFile", "GetAgentConfig")
	add(registryv1.AgentService_ServiceDesc, both.To("gateway"), "GetAgentStatus")
	add(registryv1.ThreadService_ServiceDesc, both, "EnsureThread", "PushEvents", "PeekEvents", "PopEvents", "AckEvents", "Subscribe", "Unsubscribe", "GetThread", "ListThreads")
	add(registryv1.ThreadService_ServiceDesc, ends(both), "WatchEvents")
	add(registryv1.LeaseService_ServiceDesc, both.To("gateway"), "ListLeases") // where hooks can run
	add(registryv1.LeaseService_ServiceDesc, both.To("gateway"), "RenewLease", "ReleaseLease")
	add(registryv1.LeaseService_ServiceDesc, waits(both.To("gateway")), "AcquireLease")
	add(registryv1.LeaseService_ServiceDesc, ends(both), "AcquireDueLease")
	add(registryv1.LeaseService_ServiceDesc, waits(gateway), "FindRunner") // of a run that a client follows
	add(registryv1.LeaseService_ServiceDesc, owner, "RequestAbort")
	add(registryv1.TurnService_ServiceDesc, ends(runner), "OpenBatch")
	add(registryv1.TurnService_ServiceDesc, runner, "BeginTurn", "RecordStep", "FinishTurn", "RecordCompaction", "GetMemory", "GetTurnConfig", "WithdrawTurn", "RecordProcess", "ListProcesses")
	add(registryv1.TurnService_ServiceDesc, waits(both.To("gateway")), "GetTurn")
	add(registryv1.TurnService_ServiceDesc, both, "ListTurns")
	add(registryv1.TurnService_ServiceDesc, owner, "RetryTurn", "DropTurn", "SumUsage")
	add(registryv1.WorkdirService_ServiceDesc, runner, "GetWorkdir", "CommitWorkdir")
	add(registryv1.WorkdirService_ServiceDesc, waits(runner), "ReadPieces", "WritePieces")
	add(registryv1.DeliveryService_ServiceDesc, deliverer, "BeginDelivery", "DecideDelivery", "FinishDelivery")
	add(registryv1.DeliveryService_ServiceDesc, both, "ListDeliveries")
	add(registryv1.DeliveryService_ServiceDesc, owner, "RetryDelivery", "DropDelivery")
	add(registryv1.ApprovalService_ServiceDesc, waits(runner), "RequestApproval")
	add(registryv1.ApprovalService_ServiceDesc, owner, "ListApprovals", "GetExecPolicy", "SetExecPolicy")
	add(registryv1.ApprovalService_ServiceDesc, gateway, "ResolveApproval") // by an owner
	add(registryv1.ApprovalService_ServiceDesc, ends(gateway), "WatchApprovals")
	add(registryv1.QuestionService_ServiceDesc, waits(runner), "RequestQuestion")
	add(registryv1.QuestionService_ServiceDesc, runner.To("gateway"), "AnswerQuestion")
	add(registryv1.QuestionService_ServiceDesc, owner, "ListQuestions")
	add(registryv1.QuestionService_ServiceDesc, ends(gateway), "WatchQuestions")
	add(registryv1.PinService_ServiceDesc, runner, "ReportTools", "ListPins")
	add(registryv1.PinService_ServiceDesc, owner, "ResolvePins")
	add(registryv1.MediaService_ServiceDesc, waits(runner.To("gateway")), "WriteMedia")
	add(registryv1.MediaService_ServiceDesc, waits(both), "ReadMedia")
	add(registryv1.IdentityService_ServiceDesc, owner, "NoteIdentityChange")
	add(registryv1.RoutingService_ServiceDesc, owner, "ResolveRoute", "ListBindings", "SetBindings")
	add(registryv1.ChannelService_ServiceDesc, gateway, "AcceptMessages", "GetCursor", "PutCursor", "ListPairings", "ReportNotice")
	add(registryv1.ChannelService_ServiceDesc, waits(gateway), "ResolvePairing")
	add(registryv1.ChannelService_ServiceDesc, ends(gateway), "WatchPairings")
	add(registryv1.SessionService_ServiceDesc, owner, "ListSessions", "PatchSession", "ResetSession", "ArchiveSession")
	add(registryv1.SessionService_ServiceDesc, gateway, "GetSession")
	add(registryv1.HomeService_ServiceDesc, owner, "GetHomeConfig", "SetHomeConfig", "SetHomeValue", "ExportHome")
	add(registryv1.HomeService_ServiceDesc, runner, "ListHooks")
	add(registryv1.HomeService_ServiceDesc, ends(gateway), "WatchHomeConfig")
	return p
}
