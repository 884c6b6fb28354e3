package runner

import (
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Policy is the access table of the runner: it belongs to the owner. A run that
// is only watched or waited for does not hold up a drain.
func Policy() serve.Policy {
	owner, waits, ends := serve.Allow(rpc.Owner), serve.Allow(rpc.Owner), serve.Allow(rpc.Owner)
	waits.Waits = true
	ends.Waits, ends.EndOnDrain = true, true
	return serve.Policy{
		runnerpb.RunnerService_RunBatch_FullMethodName:      waits,
		runnerpb.RunnerService_StartRun_FullMethodName:      owner,
		runnerpb.RunnerService_WaitRun_FullMethodName:       ends,
		runnerpb.RunnerService_StreamRun_FullMethodName:     ends.To("gateway"),
		runnerpb.RunnerService_AbortRun_FullMethodName:      owner,
		runnerpb.RunnerService_BuildContext_FullMethodName:  owner,
		runnerpb.RunnerService_CompactMemory_FullMethodName: waits,
		runnerpb.RunnerService_GetRunnerInfo_FullMethodName: owner.To("deliverer", "gateway"),
		runnerpb.RunnerService_RunHook_FullMethodName:       waits.To("deliverer", "gateway"),
		runnerpb.RunnerService_ListProviders_FullMethodName: owner.To("gateway"),
		runnerpb.RunnerService_TestProvider_FullMethodName:  waits,
		runnerpb.ToolService_ListTools_FullMethodName:       owner,
		runnerpb.ToolService_GetChanges_FullMethodName:      owner,
		runnerpb.ToolService_ListServers_FullMethodName:     owner,
		runnerpb.ToolService_StartServer_FullMethodName:     waits,
	}
}
