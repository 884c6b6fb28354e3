// Package status implements the tool session_status, with which a model reads what is known of its
// own conversation: model, epoch, the used part of the context window, tokens, cost and time.
//
// Most of it is in the turn ([toolset.Status]). A call asks the registry for two things more: when
// the epoch began and the time zone of the agent. What is not known is left out of the result, and
// so is what the registry does not answer in time: a call never fails for it.
//
// It changes nothing, and adds up nothing but the turn: what the epoch has cost is a question of
// the owner to the registry. It is a package of its own because each tool is.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "session_status"

// wait bounds the calls of the registry together.
const wait = 5 * time.Second

// Agents is the part of the registry's AgentService that the tool needs.
type Agents interface {
	GetAgentConfig(ctx context.Context, in *registrypb.GetAgentConfigRequest, opts ...grpc.CallOption) (*registrypb.GetAgentConfigResponse, error)
}

// Threads is the part of the registry's ThreadService that the tool needs.
type Threads interface {
	PeekEvents(ctx context.Context, in *registrypb.PeekEventsRequest, opts ...grpc.CallOption) (*registrypb.PeekEventsResponse, error)
}

// Tool implements [toolset.Tool].
type Tool struct {
	Agents  Agents
	Threads Threads
	// Version of the program; empty: it is left out.
	Version string
}

// Spec implements [toolset.Tool].
func (Tool) Spec() toolset.Spec {
	return toolset.Spec{
		Name: Name,
		Description: "Reports the state of this conversation: model, session and when it began, the used part of the " +
			"context window, tokens and cost of this turn, waiting messages, sandbox, and the time.",
		Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
	}
}

// Class implements [toolset.Tool].
func (Tool) Class(toolset.Call) toolset.Class { return toolset.Read }

// report is the result of a call.
type report struct {
	Agent    string  `json:"agent"`
	Session  string  `json:"session,omitempty"`
	Model    string  `json:"model,omitempty"`
	Thinking string  `json:"thinking,omitempty"`
	Epoch    *epoch  `json:"epoch,omitempty"`
	Prompt   *prompt `json:"prompt,omitempty"`
	Turn     *spent  `json:"turn,omitempty"`
	Waiting  *int    `json:"waiting_messages,omitempty"`
	Sandbox  string  `json:"sandbox"`
	Time     string  `json:"time"`
	Zone     string  `json:"time_zone,omitempty"`
	Version  string  `json:"version,omitempty"`
}

type epoch struct {
	ID    string `json:"id,omitempty"`
	Began string `json:"began,omitempty"`
}

type prompt struct {
	Messages int    `json:"messages"`
	Tokens   int64  `json:"estimated_tokens"`
	Window   int64  `json:"context_window,omitempty"`
	Percent  *int64 `json:"percent_used,omitempty"`
}

type spent struct {
	Answers int      `json:"answers"`
	Input   int64    `json:"input_tokens"`
	Output  int64    `json:"output_tokens"`
	Cost    *float64 `json:"cost,omitempty"`
}

// Run implements [toolset.Tool].
func (t Tool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var s toolset.Status
	if c.Place.Status != nil {
		s = c.Place.Status()
	}
	name := t.zone(ctx, c.Place.AgentID)
	r := report{
		Agent: c.Place.AgentID, Session: s.Session, Model: strings.Trim(s.Provider+"/"+s.Model, "/"), Thinking: s.Thinking,
		Sandbox: boxed(c.Place.Config), Time: time.Now().In((&config.Config{Timezone: name}).Zone()).Format(time.RFC3339),
		Zone: name, Version: t.Version,
	}
	if e := (epoch{s.Epoch, t.began(ctx, c.Place, s.EpochFromID)}); e != (epoch{}) {
		r.Epoch = &e
	}
	if s.Messages > 0 {
		r.Prompt = &prompt{Messages: s.Messages, Tokens: s.Tokens, Window: s.Window}
		if s.Window > 0 {
			percent := s.Tokens * 100 / s.Window
			r.Prompt.Percent = &percent
		}
	}
	if s.Answers > 0 {
		r.Turn = &spent{Answers: s.Answers, Input: s.Input, Output: s.Output}
		if !s.Unpriced {
			r.Turn.Cost = &s.Cost
		}
	}
	if c.Place.Waits != nil {
		behind, _ := c.Place.Waits.Replies(0)
		n := len(behind)
		r.Waiting = &n
	}
	result, err := json.Marshal(r)
	if err != nil {
		return toolset.Failed("the state cannot be encoded")
	}
	return toolset.Result{JSON: result}
}

// zone is the name of the agent's time zone; empty: that of the host, or it is not known.
func (t Tool) zone(ctx context.Context, agentID string) string {
	r, err := t.Agents.GetAgentConfig(ctx, &registrypb.GetAgentConfigRequest{AgentId: agentID})
	if err != nil {
		return ""
	}
	for _, v := range r.GetValues() {
		if name := strings.TrimSpace(v.GetValue()); v.GetKey() == "user_timezone" {
			if _, err := time.LoadLocation(name); err == nil {
				return name
			}
		}
	}
	return ""
}

// began is when the epoch began: at the event from, or at the first of the thread; empty: not known.
func (t Tool) began(ctx context.Context, p toolset.Place, from int64) string {
	first := cmp.Or(from, 1)
	r, err := t.Threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: p.AgentID, ThreadId: p.ThreadID}, AfterId: first - 1, Limit: 1,
	})
	if events := r.GetEvents(); err == nil && len(events) > 0 && events[0].GetId() == first { // else it was pruned
		return events[0].GetCreatedAt()
	}
	return ""
}

// boxed is where programs of the turn run, in one word.
func boxed(c *registrypb.TurnConfig) string {
	switch {
	case c.GetSandboxMode() == string(sandbox.Off):
		return "off"
	case c.GetSandbox().GetDocker() != nil:
		return "docker"
	}
	return "on"
}
