package toolset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// MaxArguments bounds the arguments of a call, in bytes. Arguments and result become one
// event of at most 1 MiB.
const MaxArguments = model.MaxArguments

// Class says what may be done with a call whose end is not known.
type Class int

// The classes.
const (
	Read       Class = iota + 1 // changes nothing: run it again
	Idempotent                  // may be repeated: run it again
	Effect                      // must not be repeated blindly
)

// String is the class as settings, people and metrics have it.
func (c Class) String() string {
	return map[Class]string{Read: "read", Idempotent: "idempotent", Effect: "effect"}[c]
}

// Needs are what a tool uses.
type Needs uint

const (
	Program Needs = 1 << iota // the tool starts programs
	Network                   // it connects to other machines
	Peer                      // it sends to the peer of the turn
	Person                    // it waits for a person, who is the peer of the turn
)

// Tool is one tool. It is used by all turns of a runner at once.
type Tool interface {
	// Spec is fixed for the life of the tool.
	Spec() Spec
	// Class is that of a call, before it is run.
	Class(c Call) Class
	// Run makes a call. It never fails: what went wrong is the result. When ctx ends,
	// everything that it started has ended before it returns.
	Run(ctx context.Context, c Call) Result
}

// Sender is a tool whose results have Messages. The journal holds a call and its result,
// and not what it said, so the tool returns that again.
type Sender interface {
	// Sent are the Messages of the result of a call that did not fail.
	Sent(arguments json.RawMessage) []Message
}

// Finisher is a tool that is called when the result of a call is in the journal: it does not
// need any more what it keeps to make that call again after a crash.
type Finisher interface {
	// Finished is called after each call of the tool, also of one that failed, and again
	// whenever the same turn meets the result, which another process may have journaled. It
	// is not called for a call that is in doubt, or when the turn ended in the middle of
	// the call.
	Finished(c Call)
}

// Varying is a tool that is not the same in every set: the one that runs commands has the
// arguments for the background only where the tool is offered that reads and ends what runs
// there. A tool of its own for each case would be a second name for the same thing, and
// arguments that are there and refused would change the prompt of those who do not have them.
type Varying interface {
	// In returns the tool as it is in a set with these settings, which is itself or another
	// tool of the same name. offers reports whether the set offers a tool, by the name that
	// policies have for it.
	In(c *registrypb.TurnConfig, offers func(name string) bool) Tool
}

// Asker is a tool that asks a person before it begins some of its calls.
type Asker interface {
	// Asks reports whether a call is asked for. The answer is journaled with the intent: a
	// call that asks has not begun as long as no approval of it is used.
	Asks(c Call) bool
}

// Spec describes a tool. Name, Description and Schema are what a model gets; their bytes
// are part of every prompt.
type Spec struct {
	Name, Description string
	// Schema of the arguments, which are a JSON object.
	Schema json.RawMessage
	Needs  Needs
	// Group is the group for policies of a tool that is neither built in nor of a server, such as [toolpolicy.GroupPrograms].
	Group string
	// Server is the MCP server that offers the tool; empty: the runner itself does.
	Server string
	// External: results hold what neither the owner nor this runtime wrote. Those of a Server always do.
	External bool
	// Timeout is how long a call may take. 0: 5 minutes, or as long as the turn for a tool that runs programs, uses the network
	// or waits for a person: such a tool bounds its calls itself, by its settings and their arguments.
	Timeout time.Duration
	// Summary are the arguments of a call in a few words for people, behind the name of the tool; nil: as they are.
	Summary func(args json.RawMessage) string
}

// maxTime is how long a call may take whose Spec has no Timeout.
const maxTime = 5 * time.Minute

// limit is how long a call may take; 0: the tool bounds it.
func (s Spec) limit() time.Duration {
	switch {
	case s.Timeout > 0:
		return s.Timeout
	case s.Needs&(Program|Network|Person) != 0 || s.Server != "":
		return 0
	}
	return maxTime
}

func (s Spec) external() bool { return s.External || s.Server != "" }

// less is the order of tools: those of the runner come first, so that a server that comes or goes changes
// the end of the prompt's list only.
func (s Spec) less(other Spec) int {
	return cmp.Or(cmp.Compare(min(len(s.Server), 1), min(len(other.Server), 1)), strings.Compare(s.Name, other.Name))
}

// Place is where the calls of one turn are made.
type Place struct {
	AgentID, ThreadID string
	// Turn is the key of the turn, and InboxID its message.
	Turn    string
	InboxID int64
	// Fence is resource=token of the lease.
	Fence string
	// Config holds the settings of the agent at the claim of the turn.
	Config *registrypb.TurnConfig
	// Trusted returns nil while the lease is held.
	Trusted func(context.Context) error
	// Waits are for calls that wait for a person; nil: the turn keeps its slot, and has no peer
	// to ask.
	Waits Waits
	// Status returns what is known of the turn; nil: nothing.
	Status func() Status
	// CheckSaying returns nil when the registry would take a message with an address; nil: none is taken.
	CheckSaying func(ctx context.Context, said *registrypb.Saying) error
}

// Seen is the path under which programs of a turn see its working directory.
func Seen(c *registrypb.TurnConfig) string {
	if d := c.GetSandbox().GetDocker(); d != nil {
		return d.GetWorkdir()
	}
	return c.GetWorkdir()
}

// Outside is the path on this machine of what the model names by its path in a container. Any other path stays.
func (p Place) Outside(path string) string {
	d := p.Config.GetSandbox().GetDocker()
	if d == nil || !filepath.IsAbs(path) {
		return path
	}
	for _, dir := range []struct{ of, is string }{{p.Config.GetWorkdir(), p.Config.GetWorkdir()}, {d.GetWorkdir(), p.Config.GetWorkdir()}} {
		if rel, err := filepath.Rel(dir.of, path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(dir.is, rel)
		}
	}
	return path
}

// Call is one call of the model.
type Call struct {
	// Key is the key of the turn and of the step: stable over crashes.
	Key  string
	Name string
	Args json.RawMessage
	// Problem is why the call cannot be made; empty: it can ([model.ToolCall]).
	Problem string
	// Malformed: the Problem is about arguments that are no JSON object.
	Malformed bool
	Place     Place
	// Asks is what the [Asker] decided when the intent was journaled. A call that asks goes on
	// to ask, whatever the settings say now.
	Asks bool
	// Outside: text from outside is part of the turn. The model was shown an external result when it made the call, or
	// the message is not from an owner.
	Outside bool
	// Progress is given what the call prints while it runs, from any goroutine; nil: it is
	// not read.
	Progress func(text string)
	// Prompt is [Call.Prompted]; nil: it is not reported.
	Prompt func(p Prompt) (closed func(end string))
	// misfit is why the arguments do not fit the schema; nil: they have not been held against it.
	misfit *string
	// truncated counts a result that is shortened; nil: it is not counted.
	truncated func()
}

// Prompted reports that the call begins to wait for a person, from any goroutine. The function that it returns is called
// when the wait has ended, with a word of a few that says how, for metrics.
func (c Call) Prompted(p Prompt) (closed func(end string)) {
	if c.Prompt == nil {
		return func(string) {}
	}
	return c.Prompt(p)
}

// Result is the result of a call.
type Result struct {
	// Text is for the model: the result, or with IsError why there is none.
	Text string
	// JSON, when set, is the result instead of Text.
	JSON json.RawMessage
	// IsError: nothing was done.
	IsError bool
	// InDoubt: it is not known whether the call had an effect. Text says why, and it must not be repeated
	// blindly.
	InDoubt bool
	// Bounded: the tool has bounded Text or JSON itself, and it is not shortened.
	Bounded bool
	// Images are shown to the model next to the text, at most MaxImages. They are stored before the result is journaled.
	Images []Image
	// Messages are sent to the peer when the result is journaled, and only then.
	Messages []Message
	// ExecUse is what let a command run; nil: no entry of an allow list did.
	ExecUse *registrypb.ExecUse
}

// Message is a message to the peer of the turn, or what its Address says.
type Message struct {
	Text    string
	File    *File // nil: none
	Address Address
}

// Address is where a message goes that is not simply for the peer of the turn, and what it changes there. The fields are
// those of a Saying.
type Address struct{ Action, MessageID, Channel, To string }

func (m Message) saying(step string) *registrypb.Saying {
	return &registrypb.Saying{StepKey: step, Text: m.Text, Action: m.Address.Action, MessageId: m.Address.MessageID, Channel: m.Address.Channel, To: m.Address.To}
}

// File is a file that goes to the peer with a message. It is stored before the result is journaled.
type File struct {
	Name, MIME string
	Data       []byte
}

// CheckMessage returns why the registry would not take a message with an address, for the model; empty: it would.
func (c Call) CheckMessage(ctx context.Context, m Message) string {
	if c.Place.CheckSaying == nil {
		return "messages cannot be addressed here"
	}
	m.Text, _ = boundary.Text(m.Text, 0)
	err := c.Place.CheckSaying(ctx, m.saying(strings.TrimPrefix(c.Key, c.Place.Turn+":")))
	if err == nil {
		return ""
	}
	f := fault.From(err)
	if f.Fix == "" {
		return f.What
	}
	return f.What + ": " + f.Fix
}

// Failed is the result of a call that did nothing; why is for the model.
func Failed(why string) Result { return Result{Text: why, IsError: true} }

// Tools are all tools of a runner, sorted by name.
type Tools struct {
	tools []Tool
	specs []Spec
	// Servers has the tools of MCP servers; nil: there are none.
	Servers Servers
	// Programs are the tools that the settings of a turn define; nil: there are none.
	Programs func(c *registrypb.TurnConfig) []Tool
	// Approvals asks people about calls of MCP servers; nil refuses what has to be asked.
	Approvals Approvals
	// schemas are shared by the tools of all turns.
	schemas *schemas
}

// Servers are the MCP servers that the settings of agents name.
type Servers interface {
	// Tools are those that the owner has approved, of the servers that are not down. No server is
	// asked: they are the same for the same settings. The error comes from the registry, which keeps
	// what is approved.
	Tools(ctx context.Context, agentID string, c *registrypb.TurnConfig) ([]Tool, error)
}

// New checks the tools.
func New(tools ...Tool) (*Tools, error) {
	type described struct {
		tool Tool
		spec Spec
	}
	all := make([]described, len(tools))
	for n, tool := range tools {
		all[n] = described{tool, tool.Spec()}
	}
	slices.SortFunc(all, func(a, b described) int { return a.spec.less(b.spec) })
	t := &Tools{schemas: &schemas{}, tools: make([]Tool, 0, len(all)), specs: make([]Spec, 0, len(all))}
	for n, one := range all {
		s := one.spec
		switch {
		case s.Name == "" || s.Description == "":
			return nil, errors.New("a tool has no name or no description")
		case !json.Valid(s.Schema):
			return nil, fmt.Errorf("the schema of tool %s is no JSON", s.Name)
		case n > 0 && t.specs[n-1].Name == s.Name:
			return nil, fmt.Errorf("two tools have the name %s", s.Name)
		}
		t.tools, t.specs = append(t.tools, one.tool), append(t.specs, s)
	}
	return t, nil
}

// find returns a tool by name; false when there is none.
func (t *Tools) find(name string) (Tool, bool) {
	n, ok := t.index(name)
	if !ok {
		return nil, false
	}
	return t.tools[n], true
}

// index is the place of the tool with a name, or with another name of the same tool.
func (t *Tools) index(name string) (n int, ok bool) {
	if n = slices.IndexFunc(t.specs, func(s Spec) bool { return s.Name == name }); n >= 0 {
		return n, true
	}
	name = toolpolicy.Canonical(name)
	n = slices.IndexFunc(t.specs, func(s Spec) bool { return toolpolicy.Canonical(s.Name) == name })
	return n, n >= 0
}

// Has reports whether there is a tool of this name.
func (t *Tools) Has(name string) bool {
	_, ok := t.find(name)
	return ok
}

// Sent are the messages that a finished call of a turn has sent to the peer.
func (t *Tools) Sent(s *registrypb.Step) []Message {
	tool, _ := t.find(s.GetName())
	sender, ok := tool.(Sender)
	if !ok || s.GetState() != registrypb.StepState_STEP_STATE_DONE || Failure(s.GetResult()) != "" {
		return nil
	}
	return sender.Sent(json.RawMessage(s.GetArguments()))
}

// Set is the tools of one turn. It does not change while the turn lasts.
type Set struct {
	all       *Tools
	tools     []Tool // those of all, as they are in this set
	specs     []Spec // with the names under which they are offered
	layers    []toolpolicy.Layer
	decisions []toolpolicy.Decision // on each tool
	offered   []model.Tool
}

// For returns the tools of a turn with these settings, those of its MCP servers and its programs included. The error
// comes from Servers.
func (t *Tools) For(ctx context.Context, agentID string, c *registrypb.TurnConfig) (Set, error) {
	var more []Tool
	if t.Servers != nil {
		var err error
		if more, err = t.Servers.Tools(ctx, agentID, c); err != nil {
			return Set{}, err
		}
	}
	if t.Programs != nil {
		for _, p := range t.Programs(c) {
			if !t.Has(p.Spec().Name) { // the registry may not know a newer tool of the runner
				more = append(more, p)
			}
		}
	}
	if len(more) == 0 {
		return t.Set(c), nil
	}
	all, err := New(slices.Concat(t.tools, more)...)
	if err != nil { // the pins of a registry that checks less
		return Set{}, err
	}
	all.Approvals, all.schemas = t.Approvals, t.schemas
	return all.Set(c), nil
}

// Set returns the tools of a turn with these settings: those that every layer allows, under
// the names of the presentation.
func (t *Tools) Set(c *registrypb.TurnConfig) Set {
	s := Set{all: t, tools: slices.Clone(t.tools), specs: slices.Clone(t.specs), layers: layers(c)}
	policy := toolpolicy.New(s.layers)
	s.decisions = make([]toolpolicy.Decision, 0, len(t.specs))
	for _, spec := range t.specs {
		s.decisions = append(s.decisions, policy.Decide(policyTool(spec)))
	}
	for n := range s.specs {
		if v, ok := s.tools[n].(Varying); ok {
			s.tools[n] = v.In(c, s.offers)
			s.specs[n] = s.tools[n].Spec()
		}
		s.specs[n].Name = toolpolicy.Presented(c.GetPresentation(), s.specs[n].Name)
	}
	s.offer()
	return s
}

// offer lists the tools that are allowed.
func (s *Set) offer() {
	allowed := make([]int, 0, len(s.decisions))
	for n, d := range s.decisions {
		if d.Allowed {
			allowed = append(allowed, n)
		}
	}
	slices.SortFunc(allowed, func(a, b int) int { return s.specs[a].less(s.specs[b]) })
	s.offered = make([]model.Tool, 0, len(allowed))
	for i, n := range allowed {
		spec := s.specs[n]
		if i >= toolpolicy.MaxOffered && spec.Server != "" {
			rule := fmt.Sprintf("a model gets at most %d tools, and there are %d", toolpolicy.MaxOffered, len(allowed))
			s.decisions[n] = toolpolicy.Decision{Rule: rule, OverLimit: true}
			continue
		}
		s.offered = append(s.offered, model.Tool{Name: spec.Name, Description: spec.Description, Schema: spec.Schema})
	}
}

// offers reports whether the set has a tool, by any of its names.
func (s Set) offers(name string) bool {
	n, ok := s.all.index(name)
	return ok && s.decisions[n].Allowed
}

// WithoutPerson is the set of a turn whose peer is a program: it offers no tool that waits for a
// person.
func (s Set) WithoutPerson() Set {
	s.decisions, s.offered = slices.Clone(s.decisions), slices.Clone(s.offered)
	for n, spec := range s.all.specs {
		if spec.Needs&Person != 0 && s.decisions[n].Allowed {
			s.decisions[n] = toolpolicy.Decision{Rule: "no person is the peer of this conversation"}
			s.offered = slices.DeleteFunc(s.offered, func(t model.Tool) bool { return t.Name == spec.Name })
		}
	}
	return s
}

// layers are those of the settings. A registry that sends none is older than they are.
func layers(c *registrypb.TurnConfig) []toolpolicy.Layer {
	if len(c.GetToolLayers()) == 0 {
		d := config.Default()
		d.Reply.MessageTool = c.GetMessageTool()
		return d.ToolLayers(config.Conversation{}, nil)
	}
	out := make([]toolpolicy.Layer, len(c.GetToolLayers()))
	for n, l := range c.GetToolLayers() {
		out[n] = layerOf(l)
	}
	return out
}

// Entry is what people are shown of a tool in a set.
type Entry struct {
	Spec  Spec
	Class Class // of a call without arguments
	// Denied is the decision in words, with the layer that made it; empty: the tool is offered.
	Denied string
	// OverLimit means that it is not offered because a model would get too many tools.
	OverLimit bool
	// AllowedBy are the layers that allow it.
	AllowedBy []string
}

// Entries returns all tools of the runner, by the name that this set has for them, and whether
// it offers them.
func (s Set) Entries() []Entry {
	out := make([]Entry, len(s.specs))
	for n, spec := range s.specs {
		out[n] = Entry{Spec: spec, Class: s.tools[n].Class(Call{Name: spec.Name, Args: json.RawMessage("{}")}), Denied: s.denied(n), OverLimit: s.decisions[n].OverLimit, AllowedBy: s.allowedBy(n)}
	}
	slices.SortFunc(out, func(a, b Entry) int { return a.Spec.less(b.Spec) })
	return out
}

// denied is why a tool is not offered, in words; empty: it is.
func (s Set) denied(n int) string {
	d := s.decisions[n]
	switch {
	case d.Allowed:
		return ""
	case d.Layer == 0: // no layer has: WithoutPerson and offer have
		return d.Rule
	}
	return "denied by " + decided(s.layers[d.Layer-1], d.Rule)
}

// Layers are the names of the layers that decide, in their order.
func (s Set) Layers() (names []string) {
	for _, l := range s.layers {
		names = append(names, titled(l))
	}
	return names
}

// Offered are the tools as a model gets them, by name.
func (s Set) Offered() []model.Tool { return s.offered }

// Class is the class of a call. One that is refused runs nothing and reads.
func (s Set) Class(c Call) Class {
	tool, refusal := s.decide(c)
	if refusal != "" {
		return Read
	}
	return tool.Class(c)
}

// external reports whether the result of a call that is made is external.
func (s Set) external(c Call) bool {
	n, ok := s.all.index(c.Name)
	_, refusal := s.decide(c)
	return ok && refusal == "" && s.specs[n].external()
}

// asks reports whether a person is asked before a call begins.
func (s Set) asks(c Call) bool {
	tool, refusal := s.decide(c)
	a, ok := tool.(Asker)
	return refusal == "" && (ok && a.Asks(c) || s.guarded(tool, c))
}

// Run makes one call; the result of one that is refused says why.
func (s Set) Run(ctx context.Context, c Call) Result {
	tool, refusal := s.decide(c)
	if refusal == "" {
		refusal = s.approve(ctx, tool, c)
	}
	if refusal != "" {
		return Failed(refusal)
	}
	return s.run(ctx, tool, c)
}

// errTooLong ends a call that takes longer than its tool may.
var errTooLong = errors.New("the call has taken too long")

// run runs a call for as long as its tool may. A call that was ended has failed, unless its tool says otherwise: it may have
// ended just then.
func (s Set) run(ctx context.Context, tool Tool, c Call) Result {
	n, ok := s.all.index(c.Name)
	if !ok || s.specs[n].limit() == 0 {
		return tool.Run(ctx, c)
	}
	limit := s.specs[n].limit()
	timed, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	result := tool.Run(timed, c)
	if result.IsError && ctx.Err() == nil && timed.Err() != nil {
		result = Failed(fmt.Sprintf("the call was ended after %s. It may have done a part of what was asked", limit))
		result.InDoubt = tool.Class(c) == Effect
	}
	return result
}

// decide returns the tool that understands a call, offered or not; nil: there is none. refusal is
// why the call is not made, for the model; empty: it is.
func (s Set) decide(c Call) (tool Tool, refusal string) {
	n, ok := s.all.index(c.Name)
	switch {
	case c.Problem != "" && c.Malformed && ok && s.decisions[n].Allowed:
		return nil, invalid(s.specs[n], c.Problem)
	case c.Problem != "":
		return nil, c.Problem
	case ok:
		if c.misfit == nil {
			misfit, _ := s.all.fits(s.specs[n], c.Args)
			c.misfit = &misfit
		}
		if refusal = *c.misfit; refusal == "" {
			tool = s.tools[n]
		}
		if s.decisions[n].Allowed {
			return tool, refusal
		}
	}
	if add := toolpolicy.ServerCommand(c.Name); !ok && add != "" && !slices.ContainsFunc(s.specs, func(spec Spec) bool { return spec.Server == toolpolicy.BrowserServer }) {
		return tool, "not available: " + add
	}
	why := fmt.Sprintf("tool %q is not available here", c.Name)
	if ok {
		why += ": " + s.denied(n)
	} else if near := config.Nearest(c.Name, s.names()); near != "" {
		why += "; the nearest is " + near
	}
	for n, spec := range s.specs {
		if spec.Needs&Program != 0 && spec.Group == "" && s.decisions[n].Allowed {
			return tool, why + "; to run a command there is " + spec.Name
		}
	}
	return tool, why
}

// check holds the arguments of a call against the schema of its tool, once for all that decide on the call. note is why that
// was not possible, or not completely; empty: it was.
func (s Set) check(c *Call) (note string) {
	n, ok := s.all.index(c.Name)
	if !ok || c.Problem != "" {
		return ""
	}
	misfit, note := s.all.fits(s.specs[n], c.Args)
	c.misfit = &misfit
	return note
}

// names are those of the offered tools.
func (s Set) names() []string {
	out := make([]string, len(s.offered))
	for n, t := range s.offered {
		out[n] = t.Name
	}
	return out
}
