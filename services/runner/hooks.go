package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	events "github.com/theclaw/agents/internal/hook"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/hook"
)

// RunHook runs the program of a hook, also for callers that start no programs of agents. Its command comes from the
// settings, never from a caller.
func (s *Service) RunHook(ctx context.Context, req *runnerpb.RunHookRequest) (*runnerpb.RunHookResponse, error) {
	agentID, name, event := req.GetAgentId(), req.GetHook(), req.GetEvent()
	of, err := s.homes.ListHooks(ctx, &registrypb.ListHooksRequest{AgentId: agentID})
	if err != nil {
		return nil, err
	}
	list := events.FromProto(of.GetHooks())
	n := slices.IndexFunc(list, func(h events.Hook) bool { return h.Name == name })
	if n < 0 {
		return nil, fault.New(codes.InvalidArgument, fault.HookInvalid, fmt.Sprintf("there is no hook %.64q", name), "'agentctl hooks list' shows the hooks")
	}
	if !list[n].IsFor(event) {
		return nil, fault.New(codes.InvalidArgument, fault.HookInvalid,
			fmt.Sprintf("the hook %s is not called at %.64q", name, event), "it is called at "+strings.Join(list[n].Events, ", "))
	}
	at := hook.Place{Dir: of.GetDir(), Mode: of.GetSandboxMode()}
	if s.cfg.Root != "" && agentID != "" {
		at.Dir = filepath.Join(s.cfg.Root, agentID) // the registry's path is of its machine
	}
	return s.hooks.Run(ctx, at, list[n], req.GetInput())
}

// callHook runs a hook of a turn.
func (s *Service) callHook(ctx context.Context, h events.Hook, e *events.Event, input []byte) (events.Answer, error) {
	r, err := s.RunHook(ctx, &runnerpb.RunHookRequest{AgentId: e.Agent, Hook: h.Name, Event: e.Name, Input: string(input)})
	if err != nil {
		return events.Answer{}, err
	}
	return events.Read(e.Name, r)
}
