package sessions

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// historyFilter selects the messages of a conversation and the records that begin its epochs.
const historyFilter = "type = '" + thread.TypeMessage + "' OR (type = '" + thread.TypeRecord + "' AND subtype IN ('" + thread.SubtypeSession + "', '" + thread.SubtypeCommand + "'))"

// said is a message of a conversation, or the beginning of an epoch, for programs: SessionID,
// Reason and By are there for a beginning alone.
type said struct {
	EventID   int64  `json:"event_id"`
	CreatedAt string `json:"created_at"`
	Source    string `json:"source"`
	Text      string `json:"text"`
	SessionID string `json:"session_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
	By        string `json:"by,omitempty"`
}

func historyCommand(e *command.Env) *cobra.Command {
	limit, all := 100, false
	c := &cobra.Command{
		Use:   "history KEY",
		Short: "Show the messages of a session",
		Long: `Show the newest messages of the present epoch of a session in their order, or with --all
those of earlier epochs too, with the beginning of each. 'agentctl events' shows all events
of a thread.`,
		Example: `  agentctl sessions history agent:alice:console:cli:dm:cli
  agentctl sessions history agent:alice:console:cli:dm:cli --all --limit 1000 --json`,
		Annotations: keyed,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := get(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			after := s.GetEpochFromId()
			if all {
				after = 0
			}
			list, more, err := history(c.Context(), e, s, after, limit)
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "event", "time", "from", "text").Drop("time", "event").None("no messages in this epoch")
			return screen.List(t.Then(func() { notes(e, s, all, more, len(list)) }), list, func(m said) []any {
				if m.SessionID != "" {
					return []any{m.EventID, m.CreatedAt, "-", "--- epoch " + m.SessionID + " begins (" + strings.TrimSuffix(m.Reason+", by "+m.By, ", by ") + ")"}
				}
				return []any{m.EventID, m.CreatedAt, m.Source, m.Text}
			})
		},
	}
	command.NumberFlag(c, &limit, "limit", 1, 100_000, "maximum number of messages")
	c.Flags().BoolVar(&all, "all", false, "messages of earlier epochs too")
	return c
}

// history reads the newest entries behind an event, in their order; more reports that there
// are earlier ones.
func history(ctx context.Context, e *command.Env, s *registry.Session, after int64, limit int) (list []said, more bool, err error) {
	list = []said{}
	req := &registry.PeekEventsRequest{
		Thread: &registry.ThreadRef{AgentId: s.GetAgentId(), ThreadId: s.GetThreadId()}, AfterId: after, Filter: historyFilter, Limit: pageMost,
	}
	if limit <= pageMost {
		req.Tail, req.Limit = true, int32(limit)
	}
	for {
		r, err := e.Threads().PeekEvents(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, ev := range r.GetEvents() {
			list = append(list, saidOf(ev))
			req.AfterId = ev.GetId()
		}
		if req.GetTail() {
			return list, r.GetMore(), nil
		}
		if over := len(list) - limit; over > 0 {
			list, more = list[over:], true
		}
		if !r.GetMore() || len(r.GetEvents()) == 0 {
			return list, more, nil
		}
	}
}

func saidOf(ev *registry.Event) said {
	m := said{EventID: ev.GetId(), CreatedAt: ev.GetCreatedAt(), Source: ev.GetSource()}
	if ev.GetSubtype() == thread.SubtypeAction {
		m.Text = message.Done(ev.GetContent())
		return m
	}
	if ev.GetType() == thread.TypeMessage || ev.GetSubtype() == thread.SubtypeCommand {
		m.Text = message.Text(ev.GetContent())
		return m
	}
	var begun struct {
		SessionID string `json:"session_id"`
		Reason    string `json:"reason"`
		By        string `json:"by"`
	}
	if json.Unmarshal([]byte(ev.GetContent()), &begun) != nil || begun.SessionID == "" {
		begun.SessionID = "unknown"
	}
	m.SessionID, m.Reason, m.By = begun.SessionID, begun.Reason, begun.By
	return m
}

// notes says what is left out, and what the next message does.
func notes(e *command.Env, s *registry.Session, all, more bool, shown int) {
	switch {
	case more:
		e.Note("these are the newest %d; --limit shows more", shown)
	case !all && s.GetEpochFromId() > 0:
		e.Note("--all shows the messages of earlier epochs")
	}
	if s.GetPending() != "" {
		e.Note("the next message begins a new epoch (%s)", s.GetPending())
	}
}
