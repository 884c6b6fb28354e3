package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Pages calls page with each token until there is none left, and joins what it
// answers.
func Pages[T any](page func(token string) (items []T, next string, err error)) ([]T, error) {
	all, token := []T{}, ""
	for {
		items, next, err := page(token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" || next == token {
			return all, nil
		}
		token = next
	}
}

// AllAgents lists every agent by id, the broken ones with their problem.
func (e *Env) AllAgents(ctx context.Context) ([]*registry.Agent, error) {
	return Pages(func(token string) ([]*registry.Agent, string, error) {
		r, err := e.Agents().ListAgents(ctx, &registry.ListAgentsRequest{PageToken: token})
		return r.GetAgents(), r.GetNextPageToken(), err
	})
}

// DefaultAgent is the id of the agent that messages without another one go to.
func (e *Env) DefaultAgent(ctx context.Context) (string, error) {
	s, err := e.HomeSettings(ctx)
	if err != nil {
		return "", err
	}
	agents, err := e.AllAgents(ctx)
	if err != nil {
		return "", err
	}
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = a.GetAgentId()
	}
	slices.Sort(ids)
	id := agentdir.DefaultAgent(s, ids)
	if id == "" {
		return "", fault.New(codes.NotFound, fault.AgentNotFound, "there is no agent", "create one with 'agentctl setup', or with 'agentctl init ID'")
	}
	return id, nil
}

// AllThreads lists every conversation thread of an agent in order.
func (e *Env) AllThreads(ctx context.Context, id string) ([]string, error) {
	return Pages(func(token string) ([]string, string, error) {
		r, err := e.Threads().ListThreads(ctx, &registry.ListThreadsRequest{AgentId: id, PageToken: token})
		return r.GetThreadIds(), r.GetNextPageToken(), err
	})
}

// MustExist fails unless there is an agent of that id, or none is named: a list that is
// filtered by a mistyped id would be empty, which looks like an answer.
func (e *Env) MustExist(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	_, err := e.Agents().GetAgent(ctx, &registry.GetAgentRequest{AgentId: id})
	return err
}

// Readable are the agents that are named, or else all that can be read; those that cannot
// are noted.
func (e *Env) Readable(ctx context.Context, named []string) ([]string, error) {
	if len(named) > 0 {
		return named, nil
	}
	agents, err := e.AllAgents(ctx)
	var ids []string
	for _, a := range agents {
		if a.GetHealth() == registry.AgentHealth_AGENT_HEALTH_FAILED {
			e.Note("skipped %s, which cannot be read: %s", a.GetAgentId(), strings.ReplaceAll(a.GetProblem(), "\n", " "))
			continue
		}
		ids = append(ids, a.GetAgentId())
	}
	return ids, err
}

// Word is the word for a value of an enumeration: its name without the prefix, in small
// letters. none is for the zero value, and for one that this program does not know.
func Word[E interface {
	~int32
	fmt.Stringer
}](v E, prefix, none string) string {
	name, known := strings.CutPrefix(v.String(), prefix)
	if v == 0 || !known {
		return none
	}
	return strings.ToLower(name)
}

// Stamp is a time for programs; nil where there is none.
func Stamp(t *timestamppb.Timestamp) *string {
	if t == nil {
		return nil
	}
	s := thread.Stamp(t.AsTime())
	return &s
}
