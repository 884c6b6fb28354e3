package event

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// threadInfo is one thread; the keys of a subscription are those of `thread info`.
type threadInfo struct {
	ThreadID      string         `json:"thread_id"`
	Path          string         `json:"path"`
	UUID          string         `json:"uuid"`
	EventCount    int64          `json:"event_count"`
	HeadID        int64          `json:"head_id"`
	Subscriptions []subscription `json:"subscriptions"`
}

type subscription struct {
	ConsumerID  string  `json:"consumer_id"`
	HandlerCmd  string  `json:"handler_cmd"`
	Filter      *string `json:"filter"`
	LastAckedID int64   `json:"last_acked_id"`
	UpdatedAt   *string `json:"updated_at"`
}

func threadsCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "threads ID",
		Short: "List the threads of an agent",
		Long: `List the inbox and the conversation threads of an agent, with their consumers and how far
each has read.`,
		Example: `  agentctl threads alice
  agentctl threads alice --json | jq -r '.[].thread_id'`,
		RunE: func(c *cobra.Command, args []string) error {
			all, err := threadsOf(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "thread", "events", "head", "consumers", "path").Wide("path").Cut("thread")
			return screen.List(t, all, func(th threadInfo) []any {
				var readers []string
				for _, s := range th.Subscriptions {
					readers = append(readers, fmt.Sprintf("%s@%d", s.ConsumerID, s.LastAckedID))
				}
				return []any{th.ThreadID, th.EventCount, th.HeadID, strings.Join(readers, " "), th.Path}
			})
		},
	}
}

func threadsOf(ctx context.Context, e *command.Env, agent string) ([]threadInfo, error) {
	ids, err := e.AllThreads(ctx, agent)
	if err != nil {
		return nil, err
	}
	ids = append([]string{thread.Inbox}, ids...)
	all := make([]threadInfo, len(ids))
	step, done := screen.Progress(e, len(ids), "reading threads")
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, id := range ids {
		g.Go(func() error {
			defer step()
			r, err := e.Threads().GetThread(ctx, &registry.GetThreadRequest{Thread: &registry.ThreadRef{AgentId: agent, ThreadId: id}})
			if err != nil {
				return err
			}
			all[i] = infoOf(id, r)
			return nil
		})
	}
	return all, g.Wait()
}

func infoOf(id string, r *registry.GetThreadResponse) threadInfo {
	info := threadInfo{ThreadID: id, Path: r.GetPath(), UUID: r.GetUuid(), EventCount: r.GetEventCount(), HeadID: r.GetHeadId(), Subscriptions: []subscription{}}
	for _, s := range r.GetSubscriptions() {
		sub := subscription{ConsumerID: s.GetConsumer(), HandlerCmd: s.GetHandler(), Filter: s.Filter, LastAckedID: s.GetLastAckedId()}
		if at := s.GetUpdatedAt(); at != "" {
			sub.UpdatedAt = &at
		}
		info.Subscriptions = append(info.Subscriptions, sub)
	}
	return info
}
