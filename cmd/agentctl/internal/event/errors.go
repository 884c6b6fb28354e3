package event

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// errorFilter selects the error records that turns and deliveries leave behind.
const errorFilter = "type = 'record' AND subtype = 'error'"

// record is one error record.
type record struct {
	AgentID   string          `json:"agent_id"`
	ThreadID  string          `json:"thread_id"`
	EventID   int64           `json:"event_id"`
	CreatedAt string          `json:"created_at"`
	Error     string          `json:"error"`
	Context   json.RawMessage `json:"context"`
	// NextAt is there for a message that waits for its next try, of which there is no record
	// yet.
	NextAt *string `json:"next_at,omitempty"`

	waits string
}

func errorsCommand(e *command.Env) *cobra.Command {
	limit, agent := 50, ""
	list := &cobra.Command{
		Use:   "list",
		Short: "List the error records of all agents, newest first",
		Long: `List the error records that failed turns and deliveries wrote into the threads of all
agents, newest first, after the messages that wait for their next try now: the first one
of each agent. Use 'agentctl dlq' to retry what can be retried.`,
		Example: `  agentctl errors list
  agentctl errors list --agent alice --limit 5 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := records(c.Context(), e, agent, limit)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "time", "agent", "thread", "event", "error").Drop("event", "thread", "time").Names(1, 2, 3)
			return screen.List(t.None("no error records"), all, func(r record) []any {
				return []any{r.CreatedAt, r.AgentID, r.ThreadID, r.EventID, cmp.Or(r.waits, r.Error)}
			})
		},
	}
	command.NumberFlag(list, &limit, "limit", 1, pageMost, "maximum number of records")
	command.AgentFlag(list, &agent, "only this agent")
	return command.Group(e, &cobra.Command{
		Use: "errors", Short: "Show the errors of all agents", Example: `  agentctl errors list`,
	}, list)
}

// records collects the newest records; a thread that cannot be read is left out
// with a word about it, the others are shown.
func records(ctx context.Context, e *command.Env, only string, limit int) ([]record, error) {
	ids, refs, err := places(ctx, e, only)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	all, waiting := []record{}, []record{}
	step, done := screen.Progress(e, len(refs), "reading threads")
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, ref := range refs {
		g.Go(func() error {
			defer step()
			r, err := e.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{Thread: ref, Filter: errorFilter, Tail: true, Limit: int32(limit)})
			if err != nil {
				if only != "" || command.Unavailable(err) || ctx.Err() != nil {
					return err
				}
				e.Note("skipped %s of %s: %v", ref.GetThreadId(), ref.GetAgentId(), err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, ev := range r.GetEvents() {
				all = append(all, recordOf(ref, ev))
			}
			return nil
		})
	}
	for _, id := range ids {
		g.Go(func() error {
			if r, ok := waitingRecord(message.First(ctx, e, id)); ok {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, r)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b record) int { return cmp.Compare(a.AgentID, b.AgentID) })
	slices.SortFunc(all, func(a, b record) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.AgentID, b.AgentID),
			cmp.Compare(a.ThreadID, b.ThreadID), cmp.Compare(b.EventID, a.EventID))
	})
	all = append(waiting, all...)
	return all[:min(limit, len(all))], nil
}

// waitingRecord is the record of a message that waits for its next try; false: it does not.
func waitingRecord(t *registry.Turn) (record, bool) {
	waits := message.Waiting(t, time.Now())
	if waits == "" {
		return record{}, false
	}
	at := t.GetQueuedAt()
	if a := t.GetAttempts(); len(a) > 0 {
		at = a[len(a)-1].GetAt()
	}
	return record{
		AgentID: t.GetAgentId(), ThreadID: t.GetThreadId(), EventID: t.GetInboundEventId(), CreatedAt: thread.Stamp(at.AsTime()), Error: t.GetError(),
		Context: json.RawMessage("null"), NextAt: command.Stamp(t.GetNextAt()), waits: fmt.Sprintf("message %d waits: %s", t.GetInboxId(), waits),
	}, true
}

// places are the agents, and their threads.
func places(ctx context.Context, e *command.Env, only string) (ids []string, refs []*registry.ThreadRef, err error) {
	ids, err = e.Readable(ctx, strings.Fields(only))
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		threads, err := e.AllThreads(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		for _, th := range append([]string{thread.Inbox}, threads...) {
			refs = append(refs, &registry.ThreadRef{AgentId: id, ThreadId: th})
		}
	}
	return ids, refs, nil
}

func recordOf(ref *registry.ThreadRef, ev *registry.Event) record {
	var body struct {
		Error   string          `json:"error"`
		Context json.RawMessage `json:"context"`
	}
	if json.Unmarshal([]byte(ev.GetContent()), &body) != nil || body.Error == "" {
		body.Error = ev.GetContent()
	}
	if body.Context == nil {
		body.Context = json.RawMessage("null")
	}
	return record{AgentID: ref.GetAgentId(), ThreadID: ref.GetThreadId(), EventID: ev.GetId(), CreatedAt: ev.GetCreatedAt(), Error: body.Error, Context: body.Context}
}
