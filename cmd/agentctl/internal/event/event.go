// Package event implements the commands that show the contents of threads: `agentctl
// events`, `threads` and `errors`. With --json an event is exactly the line that
// `thread peek` prints.
package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{eventsCommand(e), threadsCommand(e), errorsCommand(e)}
}

// pageMost is the most events one call answers.
const pageMost = 1000

// reading is one run of the command events.
type reading struct {
	env    *command.Env
	thread *registry.ThreadRef
	after  int64 // -1: the newest events
	limit  int64 // 0: all
	filter string
	follow bool

	table *screen.Table // prints its titles once
	last  int64         // highest id printed
}

func eventsCommand(e *command.Env) *cobra.Command {
	r := reading{env: e, limit: 100}
	c := &cobra.Command{
		Use:   "events ID [THREAD]",
		Short: "Show the events of a thread",
		Long: `Show the events of a thread, the newest ones unless --after is given. THREAD is
"inbox" (the default) or a path such as threads/peers/cli-cli; 'agentctl threads'
lists them. With --json each event is one line, as 'thread peek' prints it.

A filter compares id, created_at, source, type and subtype, as SQL does:
  type = 'message' AND source = 'self'`,
		Example: `  agentctl events alice
  agentctl events alice threads/peers/cli-cli --follow
  agentctl events alice --after 0 --limit 0 --json
  agentctl events alice threads/main --filter "subtype = 'error'"`,
		RunE: func(c *cobra.Command, args []string) error {
			r.thread = &registry.ThreadRef{AgentId: args[0], ThreadId: thread.Inbox}
			if len(args) == 2 {
				r.thread.ThreadId = args[1]
			}
			if !c.Flags().Changed("after") {
				r.after = -1
			}
			if _, err := filter.Parse(r.filter); err != nil {
				return command.Usage(c, "--filter: %s", fault.From(err).What)
			}
			return r.run(c.Context())
		},
	}
	f := c.Flags()
	command.NumberFlag(c, &r.after, "after", 0, math.MaxInt64, "start after this event id instead of near the end")
	command.NumberFlag(c, &r.limit, "limit", 0, math.MaxInt64, "maximum number of events; 0 shows all after --after")
	command.TextFlag(f, &r.filter, "filter", command.Filter, "show only matching events")
	f.BoolVar(&r.follow, "follow", false, "keep printing new events until Ctrl-C")
	return c
}

func (r *reading) run(ctx context.Context) error {
	var err error
	if r.after < 0 && r.limit > 0 {
		err = r.tail(ctx)
	} else {
		err = r.pages(ctx)
	}
	if err != nil || !r.follow {
		return err
	}
	return r.watch(ctx)
}

// tail shows the newest events. Ids are dense enough that two steps reach any
// limit: the newest thousand come from one call, more are counted back by ids.
func (r *reading) tail(ctx context.Context) error {
	a, err := r.env.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{Thread: r.thread, Filter: r.filter, Tail: true, Limit: int32(min(r.limit, pageMost))})
	if err != nil {
		return err
	}
	r.last = a.GetHeadId()
	if r.limit > pageMost && r.filter == "" {
		r.after = max(0, a.GetHeadId()-r.limit)
		return r.pages(ctx)
	}
	return r.print(a.GetEvents())
}

func (r *reading) pages(ctx context.Context) error {
	after, left := max(0, r.after), r.limit
	r.last = after
	for {
		size := int64(pageMost)
		if r.limit > 0 {
			size = min(size, left)
		}
		a, err := r.env.Threads().PeekEvents(ctx, &registry.PeekEventsRequest{Thread: r.thread, AfterId: after, Limit: int32(size), Filter: r.filter})
		if err != nil {
			return err
		}
		if err := r.print(a.GetEvents()); err != nil {
			return err
		}
		n := len(a.GetEvents())
		left -= int64(n)
		if n > 0 {
			after = a.GetEvents()[n-1].GetId()
		}
		if !a.GetMore() || n == 0 {
			r.last = max(after, a.GetHeadId())
			return nil
		}
		if r.limit > 0 && left <= 0 {
			r.last = after
			return nil
		}
	}
}

// watch follows the thread until the person interrupts it, which is its normal
// end, and resumes after the last id when the registry was away.
func (r *reading) watch(ctx context.Context) error {
	var away time.Time // since when nobody answers
	for {
		answered, err := r.stream(ctx)
		if answered || away.IsZero() {
			away = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, io.EOF) && !command.Unavailable(err), time.Since(away) > command.Patience:
			return err
		}
		if pause.For(ctx, 200*time.Millisecond) != nil {
			return nil
		}
	}
}

// stream prints until the stream breaks; answered tells whether it ever began.
func (r *reading) stream(ctx context.Context) (answered bool, err error) {
	s, err := r.env.Threads().WatchEvents(ctx, &registry.WatchEventsRequest{Thread: r.thread, AfterId: r.last, Filter: r.filter})
	if err != nil {
		return false, err
	}
	for {
		a, err := s.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		if err := r.print(a.GetEvents()); err != nil {
			return true, err
		}
		for _, ev := range a.GetEvents() {
			r.last = max(r.last, ev.GetId())
		}
	}
}

func (r *reading) print(events []*registry.Event) error {
	if r.env.Data() {
		for _, ev := range events {
			if _, err := r.env.Item(json.RawMessage(line(ev).AppendLine(nil)), fmt.Sprint(ev.GetId())); err != nil {
				return err
			}
		}
		return nil
	}
	if r.table == nil { // the columns of what follows are those of the first events
		r.table = screen.NewTable(r.env, "id", "time", "source", "type", "content").Drop("source", "time")
	}
	for _, ev := range events {
		kind := ev.GetType()
		if ev.GetSubtype() != "" {
			kind += "/" + ev.GetSubtype()
		}
		r.table.Row(ev.GetId(), ev.GetCreatedAt(), ev.GetSource(), kind, ev.GetContent())
	}
	r.table.Print()
	return nil
}

func line(ev *registry.Event) thread.Event {
	return thread.Event{ID: ev.GetId(), CreatedAt: ev.GetCreatedAt(), Source: ev.GetSource(), Type: ev.GetType(), Subtype: ev.Subtype, Content: ev.GetContent()}
}
