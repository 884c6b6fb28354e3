package doctor

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease/runlock"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// stillness is how long an inbox is looked at before it is said to stand still.
const stillness = 2 * time.Second

// suspect is an agent with messages that nobody seems to work on.
type suspect struct {
	id    string
	acked int64
}

// agents checks every agent that there is.
func (x *examination) agents(ctx context.Context) {
	agents, err := x.env.AllAgents(ctx)
	if err != nil {
		f := fault.From(err)
		x.note("agent", problem, f.Fix, "%s", f.What)
		return
	}
	if x.ofHome, err = x.env.HomeSettings(ctx); err != nil {
		x.ofHome = layer.HomeSettings{} // another check reports it
	}
	before := x.faulty()
	var still []suspect
	step, done := screen.Progress(x.env, len(agents), "examining agents")
	for _, a := range agents {
		if s, ok := x.agent(ctx, a); ok {
			still = append(still, s)
		}
		step()
	}
	done()
	x.conversations()
	x.stuck(ctx, still)
	if x.faulty() == before {
		x.good("agents", "%d, nothing is wrong with any", len(agents))
	}
}

// ofAll reports a problem of theclaw.yaml, which every agent has, once; false: it is of one agent.
func (x *examination) ofAll(what string) bool {
	if !strings.HasPrefix(what, "theclaw.") {
		return false
	}
	known := slices.ContainsFunc(x.findings, func(f finding) bool {
		return strings.HasPrefix(f.Detail, what) || f.Detail != "" && strings.HasPrefix(what, f.Detail)
	})
	if !known {
		x.note("settings", problem, "correct that place", "%s", what)
	}
	return true
}

// faulty counts the findings that are not well.
func (x *examination) faulty() (n int) {
	for _, f := range x.findings {
		if f.Status != ok {
			n++
		}
	}
	return n
}

// agent checks one agent; ok is true when it has to be looked at again.
func (x *examination) agent(ctx context.Context, a *registry.Agent) (s suspect, ok bool) {
	id := a.GetAgentId()
	switch a.GetHealth() {
	case registry.AgentHealth_AGENT_HEALTH_FAILED:
		x.note("agent", problem, "correct what it names; 'agentctl status "+id+"' shows when it is well", "%s cannot be used: %s", id, a.GetProblem())
		return s, false
	case registry.AgentHealth_AGENT_HEALTH_DEGRADED:
		if a.GetSetAside() != nil {
			x.note("agent", warning, "see the runner's log; work on it resumes automatically", "%s is %s", id, a.GetProblem())
			break
		}
		if x.ofAll(a.GetProblem()) {
			break
		}
		x.note("agent", problem, "correct what it names: a place in its settings, the write permission of its files, or the space on the disk", "%s works with limits: %s", id, a.GetProblem())
	default:
	}
	if settings, err := x.env.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: id}); err != nil {
		f := fault.From(err)
		x.note("agent", problem, f.Fix, "%s: %s", id, f.What)
	} else {
		x.chosen(ctx, id, settings)
		x.transcriber(ctx, id, settings)
		x.container(ctx, id, settings)
		x.toolsOf(ctx, id, settings)
	}
	r, err := x.env.Agents().GetAgentStatus(ctx, &registry.GetAgentStatusRequest{AgentId: id})
	if err != nil {
		f := fault.From(err)
		x.note("agent", problem, f.Fix, "%s: %s", id, f.What)
		return s, false
	}
	x.progress(ctx, id, r.GetInbox().GetLastAckedId(), a.GetStarted())
	x.locks(id, r.GetInboxPath())
	if n := r.GetDead(); n > 0 {
		x.note("agent", warning, "see 'agentctl dlq list "+id+"'", "%s has %d dead letters", id, n)
	}
	if used, most := r.GetTokensToday(), r.GetTokensPerDay(); most > 0 && used >= most {
		x.note("agent", warning, "wait until 00:00 UTC, or raise quota.tokens_per_day after you have seen why: 'agentctl usage "+id+"'",
			"%s has used its tokens of today, %d of %d, and takes no messages", id, used, most)
	} else if most > 0 && used >= most/10*8 {
		x.note("agent", warning, "see 'agentctl usage "+id+"'", "%s has used %d of its %d tokens of today", id, used, most)
	}
	return suspect{id, r.GetInbox().GetLastAckedId()}, r.GetInbox().GetPending() > 0 && a.GetStarted()
}

// maxProbes bounds the calls to providers that agents name: each may take --timeout.
const maxProbes = 5

// chosen checks the model that an agent names, each choice once, and calls its provider.
func (x *examination) chosen(ctx context.Context, id string, settings *registry.GetAgentConfigResponse) {
	var c choice
	c.provider, c.model = provider.ChosenOf(settings)
	if c == (choice{}) || x.byDefault == "" {
		return
	}
	p, known := x.choices[c]
	if !known {
		p = provider.Check(ctx, x.env, c.provider, c.model)
		x.choices[c] = p
	}
	switch {
	case p != nil:
		x.note("agent", problem, p.Fix, "%s: its model cannot be used: %s", id, p.What)
	case c.provider != "" && c.provider != x.byDefault && !x.probed[c.provider] && len(x.probed) < maxProbes:
		x.probed[c.provider] = true
		x.probe(ctx, c.provider, c.model, c.provider+" (of "+id+")")
	case !known:
		x.good("model", "%s, chosen by %s", cmp.Or(c.provider, x.byDefault)+"/"+cmp.Or(c.model, "its first model"), id)
	}
}

// transcriber checks the provider that makes text of the voice messages of an agent.
func (x *examination) transcriber(ctx context.Context, id string, settings *registry.GetAgentConfigResponse) {
	name := provider.TranscriberOf(settings)
	if name == "" || x.byDefault == "" {
		return
	}
	if p := provider.CheckTranscriber(ctx, x.env, name); p != nil {
		x.note("agent", problem, p.Fix, "%s: its voice messages cannot be transcribed: %s", id, p.What)
	}
}

// container checks docker for an agent whose settings choose it.
func (x *examination) container(ctx context.Context, id string, settings *registry.GetAgentConfigResponse) {
	if !slices.ContainsFunc(settings.GetValues(), func(v *registry.ConfigValue) bool { return v.GetKey() == "sandbox.driver" && v.GetValue() == "docker" }) {
		return
	}
	// Of a group, which is in the sandbox where the main conversation may not be.
	key := sessionkey.Key{Agent: id, Scope: sessionkey.Conversation, Type: "doctor", Kind: sessionkey.Group, Peer: "1"}
	r, err := runner.NewToolServiceClient(x.env.Conn(command.Runner)).ListTools(ctx, &runner.ListToolsRequest{AgentId: id, SessionKey: key.String()})
	if err != nil {
		f := fault.From(err)
		x.note("docker", problem, f.Fix, "%s: %s", id, f.What)
		return
	}
	x.docker(id, r.GetSandbox())
}

// docker reports what a runner says of the container of an agent.
func (x *examination) docker(id string, box *runner.SandboxInfo) {
	switch {
	case !box.GetSandboxed():
		x.good("docker", "chosen by %s, which has its programs on the host", id)
	case box.GetProblem() != "":
		x.note("docker", problem, box.GetProblemFix(), "%s: its programs cannot run: %s", id, box.GetProblem())
	default:
		x.note("docker", warning, "set sandbox.driver to auto, unless programs need the image",
			"%s: its programs run in a container, which is weaker than the sandbox of the runner: a process that leaves its process group lives until the container is removed, "+
				"and a user who may use docker is root on the host", id)
	}
}

// progress compares our account of the inbox with the mirror that other tools
// read and may have moved. Ours decides; the difference is worth a word.
func (x *examination) progress(ctx context.Context, id string, acked int64, started bool) {
	r, err := x.env.Threads().GetThread(ctx, &registry.GetThreadRequest{Thread: &registry.ThreadRef{AgentId: id, ThreadId: thread.Inbox}})
	if err != nil {
		f := fault.From(err)
		x.note("agent", problem, f.Fix, "%s: %s", id, f.What)
		return
	}
	if started && !slices.ContainsFunc(r.GetSubscriptions(), func(s *registry.Subscription) bool { return s.GetConsumer() == thread.Inbox }) {
		x.note("agent", warning, "agentctl start "+id, "%s: the inbox consumer is gone, so no other program dispatches it; ours does", id)
		x.mend("subscribe "+id+" to its inbox", func(ctx context.Context) error {
			_, err := x.env.Agents().StartAgent(ctx, &registry.StartAgentRequest{AgentId: id})
			return err
		})
	}
	for _, s := range r.GetSubscriptions() {
		if s.GetConsumer() == thread.Inbox && s.GetLastAckedId() > acked {
			x.note("agent", warning, "nothing to do: it is put right with the next message",
				"%s: another tool moved the inbox progress to %d; the runtime stands at %d, and that decides", id, s.GetLastAckedId(), acked)
		}
	}
}

// stuck looks a second time at agents that had messages waiting.
func (x *examination) stuck(ctx context.Context, still []suspect) {
	if len(still) == 0 {
		return
	}
	if pause.For(ctx, stillness) != nil {
		return
	}
	for _, s := range still {
		r, err := x.env.Agents().GetAgentStatus(ctx, &registry.GetAgentStatusRequest{AgentId: s.id})
		in := r.GetInbox()
		if err != nil || in.GetPending() == 0 || in.GetLastAckedId() != s.acked {
			continue
		}
		if h := r.GetHolder(); runlock.Blocks(h) {
			x.note("agent", problem, "end that process if it is not needed: a lock whose process is gone is taken over", "%s has %d messages waiting after %d and no runner takes it: %s",
				s.id, in.GetPending(), s.acked, h)
			continue
		}
		if x.waiting(ctx, s) || r.GetHolder() != "" {
			continue
		}
		x.note("agent", problem, "is a runner there ('agentctl doctor' names it), and who holds the agent ('agentctl lease list')?",
			"%s has %d messages waiting after %d and nobody works on them", s.id, in.GetPending(), s.acked)
	}
}

// waiting tells whether the first waiting message has its next try at a time of
// its own, and says so.
func (x *examination) waiting(ctx context.Context, s suspect) bool {
	r, err := x.env.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: s.id, InboxId: s.acked + 1})
	if err != nil || r.GetTurn().GetState() != registry.TurnState_TURN_STATE_WAITING {
		return false
	}
	x.note("agent", warning, "see 'agentctl explain "+s.id+" "+strconv.FormatInt(s.acked+1, 10)+"'", "message %d of %s waits: %s",
		s.acked+1, s.id, message.Waiting(r.GetTurn(), time.Now()))
	return true
}
