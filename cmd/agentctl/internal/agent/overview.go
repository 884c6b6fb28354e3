package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/agentctl/internal/channels"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	process "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// recent is how far back a session was active to be counted.
	recent = 24 * time.Hour
	// shownSessions of them are shown.
	shownSessions = 5
	// maxSessions of one agent are counted.
	maxSessions = 1000
)

// overview is what is shown above the agents.
type overview struct {
	Services []service         `json:"services"`
	Channels []channels.Status `json:"channels"`
	Queue    queue             `json:"queue"`
	Sessions sessionSum        `json:"sessions"`
	Agents   []status          `json:"agents"`
}

// service is a service as it answers.
type service struct {
	Service       string  `json:"service"`
	Reachable     bool    `json:"reachable"`
	Version       string  `json:"version,omitempty"`
	PID           int32   `json:"pid,omitempty"`
	UptimeSeconds float64 `json:"uptime_seconds,omitempty"`
	Problem       string  `json:"problem,omitempty"`
}

// queue is what waits in all agents.
type queue struct {
	InboxPending    int64 `json:"inbox_pending"`
	OutboundPending int64 `json:"outbound_pending"`
	Dead            int64 `json:"dead"`
}

// sessionSum is about the sessions of the last 24 hours.
type sessionSum struct {
	Active int64     `json:"active_24h"`
	More   bool      `json:"more"` // an agent has more than are counted
	Latest []session `json:"latest"`
}

type session struct {
	Key      string `json:"key"`
	Messages int64  `json:"messages"`
	LastAt   string `json:"last_at"`

	last time.Time
}

// look asks each service for itself, the gateway for its accounts, and each agent that was active for its sessions. What
// does not answer is shown as that.
func look(ctx context.Context, e *command.Env, agents []status) (overview, error) {
	names := []string{command.Registry, command.Runner, command.Deliverer, command.Gateway}
	o := overview{Services: make([]service, len(names)), Channels: []channels.Status{}, Sessions: sessionSum{Latest: []session{}}, Agents: agents}
	for _, a := range agents {
		o.Queue.InboxPending += a.InboxPending
		o.Queue.OutboundPending += a.OutboundPending
		o.Queue.Dead += a.Dead
	}
	since := time.Now().Add(-recent)
	pages := make([]*registry.ListSessionsResponse, len(agents))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, name := range names {
		g.Go(func() error { o.Services[i] = serviceOf(ctx, e, name); return nil })
	}
	g.Go(func() error {
		if list, err := channels.Statuses(ctx, e); err == nil { // the service says that it does not answer
			o.Channels = list
		}
		return nil
	})
	for i, a := range agents {
		if a.active.Before(since) {
			continue
		}
		g.Go(func() (err error) {
			pages[i], err = e.Sessions().ListSessions(ctx, &registry.ListSessionsRequest{AgentId: a.AgentID, ActiveSince: timestamppb.New(since), PageSize: maxSessions})
			if err != nil { // a broken agent is shown in the table
				pages[i] = nil
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return o, err
	}
	for _, p := range pages {
		o.Sessions.Active += int64(len(p.GetSessions()))
		o.Sessions.More = o.Sessions.More || p.GetNextPageToken() != ""
		for _, s := range p.GetSessions()[:min(shownSessions, len(p.GetSessions()))] {
			at := s.GetLastAt().AsTime()
			o.Sessions.Latest = append(o.Sessions.Latest, session{s.GetKey(), s.GetMessages(), *command.Stamp(s.GetLastAt()), at})
		}
	}
	slices.SortStableFunc(o.Sessions.Latest, func(a, b session) int { return b.last.Compare(a.last) })
	o.Sessions.Latest = o.Sessions.Latest[:min(shownSessions, len(o.Sessions.Latest))]
	return o, ctx.Err()
}

func serviceOf(ctx context.Context, e *command.Env, name string) service {
	r, err := e.Process(name).GetProcess(ctx, &process.GetProcessRequest{})
	if err != nil {
		return service{Service: name, Problem: fault.From(err).What}
	}
	return service{Service: name, Reachable: true, Version: r.GetVersion(), PID: r.GetPid(), UptimeSeconds: r.GetUptime().AsDuration().Seconds()}
}

// print writes the tables above that of the agents.
func (o overview) print(e *command.Env) {
	now := time.Now()
	t := screen.NewTable(e, "service", "state", "up", "version", "what").Drop("version")
	for _, s := range o.Services {
		state, up := "up", screen.Age(now, now.Add(-time.Duration(s.UptimeSeconds*float64(time.Second))))
		if !s.Reachable {
			state, up = "away", "-"
		}
		t.Row(s.Service, state, up, cmp.Or(s.Version, "-"), s.Problem)
	}
	t.Print()
	fmt.Fprintln(e.Out)
	if len(o.Channels) > 0 {
		t := screen.NewTable(e, "channel", "type", "state", "in", "out", "lag", "what").Drop("lag", "type")
		for _, c := range o.Channels {
			t.Row(c.Name, c.Type, c.State, c.In, c.Sent(), c.Late(), c.What)
		}
		t.Print()
		fmt.Fprintln(e.Out)
	}
	if len(o.Sessions.Latest) > 0 {
		t := screen.NewTable(e, "session", "messages", "active").Cut("session")
		for _, s := range o.Sessions.Latest {
			t.Row(s.Key, s.Messages, screen.Age(now, s.last))
		}
		t.Print()
		fmt.Fprintln(e.Out)
	}
	least := ""
	if o.Sessions.More {
		least = "at least "
	}
	fmt.Fprintf(e.Out, "%s waiting, %s to send, %s\n%s%s active in 24 hours\n\n",
		command.Count(o.Queue.InboxPending, "message"), command.Count(o.Queue.OutboundPending, "reply", "replies"),
		command.Count(o.Queue.Dead, "dead letter"), least, command.Count(o.Sessions.Active, "session"))
}
