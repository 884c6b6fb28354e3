package command

import (
	"context"

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

// AllThreads lists every conversation thread of an agent in order.
func (e *Env) AllThreads(ctx context.Context, id string) ([]string, error) {
	return Pages(func(token string) ([]string, string, error) {
		r, err := e.Threads().ListThreads(ctx, &registry.ListThreadsRequest{AgentId: id, PageToken: token})
		return r.GetThreadIds(), r.GetNextPageToken(), err
	})
}
