package turns

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/chatcommand"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/sessions"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// byCommand is who begins an epoch by a command, in its record: who wrote the command is in the record of that.
const byCommand = "command"

// command is a chat command that a turn answers without a model.
type command struct {
	*registryv1.ChatCommand

	problem string // why it was not carried out; empty: it was, or the runner does it
	note    string // what the person should know of a setting that was changed
}

// A setting is what a command changes of the session of its conversation.
type setting struct {
	title string // begins the answer
	field func(*store.SessionPatch) **string
	value func(*store.Session) string
}

var commandSettings = map[string]setting{
	chatcommand.Model:     {"Model", func(p *store.SessionPatch) **string { return &p.Model }, func(s *store.Session) string { return s.Model }},
	chatcommand.Think:     {"Thinking", func(p *store.SessionPatch) **string { return &p.Thinking }, func(s *store.Session) string { return s.Thinking }},
	chatcommand.Queue:     {"Queue", func(p *store.SessionPatch) **string { return &p.QueueMode }, func(s *store.Session) string { return s.QueueMode }},
	chatcommand.Verbose:   {"Verbose", func(p *store.SessionPatch) **string { return &p.Verbose }, func(s *store.Session) string { return s.Verbose }},
	chatcommand.Reasoning: {"Reasoning", func(p *store.SessionPatch) **string { return &p.Reasoning }, func(s *store.Session) string { return s.Reasoning }},
	chatcommand.Elevated:  {"Elevated", func(p *store.SessionPatch) **string { return &p.Elevated }, func(s *store.Session) string { return s.Elevated }},
}

// forOwners is what a person is told who changes a setting whose effect is, in part, for others.
var forOwners = map[string]string{
	chatcommand.Verbose:   "Arguments and results are shown to owners, in direct conversations.",
	chatcommand.Reasoning: "A block is shown to owners, in direct conversations.",
}

// asAgent is the argument with which a setting is as the agent's settings say.
const asAgent = "default"

// isCommand reports whether the turn of an event is one without a model.
func isCommand(o *store.Origin) bool {
	c := wire.Command(o)
	return c != nil && (c.GetName() != chatcommand.New || c.GetArgs() == "")
}

// claimCommand makes the claim of an event that is a chat command: its epoch, what it changes of the session, and what
// the conversation gets in place of the message. nil: the event is a message. The text after /new is one, which the
// model answers in the new epoch.
func claimCommand(b *store.Begin, set *agentdir.Agent, o *store.Origin) *command {
	c := wire.Command(o)
	if c == nil {
		return nil
	}
	session := b.Session
	if session == nil { // a push of a command names one
		session = &store.BeginSession{}
	}
	switch c.GetName() {
	case chatcommand.New:
		session.Reason, session.By = store.EpochNew, byCommand
	case chatcommand.Reset:
		session.Reason, session.By = store.EpochReset, byCommand
	}
	if !isCommand(o) {
		b.Event.Content = withFields(b.Event.Content, map[string]any{"text": c.GetArgs()})
		return nil
	}
	out := &command{ChatCommand: c}
	if s, ok := commandSettings[c.GetName()]; ok && c.GetArgs() != "" {
		out.problem = s.change(&session.Patch, set, c, b.Event.Source)
		if !reads(set, b.Event.Source) {
			out.note = forOwners[c.GetName()]
		}
	}
	b.Event.Content = withFields(b.Event.Content, map[string]any{"command": chatcommand.Command{Name: c.GetName(), Args: c.GetArgs()}})
	b.Event.Type, b.Event.Subtype = thread.TypeRecord, new(thread.SubtypeCommand)
	return out
}

// change sets the argument of a command; it returns why it does not.
func (s setting) change(p *store.SessionPatch, set *agentdir.Agent, c *registryv1.ChatCommand, from string) (problem string) {
	value := c.GetArgs()
	if c.GetName() != chatcommand.Model {
		value = strings.ToLower(value)
	}
	switch {
	case c.GetName() == chatcommand.Elevated && (!set.Config.Tools.Elevated.Enabled || !mayElevate(set, from)):
		return "You may not change this: tools.elevated.allow_from of the settings says who may."
	case value == asAgent:
		value = ""
	case c.GetName() == chatcommand.Model:
		var ok bool
		if value, ok = choose(set, value); !ok {
			return fmt.Sprintf("%.80q is none of the models that can be chosen.", value)
		}
	}
	var changed store.SessionPatch
	*s.field(&changed) = &value
	if err := sessions.Check(changed); err != nil {
		f := fault.From(err)
		return strings.ToUpper(f.What[:1]) + f.What[1:] + ": " + f.Fix + "."
	}
	*s.field(p) = &value
	return ""
}

// answer is what a command that the claim has carried out is answered with; empty: the runner carries it out.
func answer(set *agentdir.Agent, c *command, se *store.Session) string {
	_, known := commandSettings[c.GetName()]
	if changes := known || c.GetName() == chatcommand.New || c.GetName() == chatcommand.Reset; changes && se == nil {
		return "This conversation has no session that a command could change."
	}
	switch c.GetName() {
	case chatcommand.New, chatcommand.Reset:
		return "New session. The model does not see what was said before."
	}
	setting, ok := commandSettings[c.GetName()]
	if !ok {
		return ""
	}
	value := setting.value(se)
	lines := []string{setting.title + ": " + cmp.Or(value, "as the settings of the agent say") + "."}
	if c.problem != "" {
		lines = []string{c.problem}
	} else if c.note != "" {
		lines[0] += " " + c.note
	}
	if c.GetName() == chatcommand.Model && (c.problem != "" || c.GetArgs() == "") {
		lines = append(lines, "Models: "+cmp.Or(strings.Join(choices(set), ", "), "none; model.fallbacks of the settings names those that can be chosen")+".")
	}
	return strings.Join(lines, "\n")
}

// choose finds the model that a person names, with or without its provider.
func choose(set *agentdir.Agent, name string) (string, bool) {
	list := choices(set)
	if slices.Contains(list, name) {
		return name, true
	}
	list = slices.DeleteFunc(list, func(m string) bool { return !strings.HasSuffix(m, "/"+name) })
	if len(list) != 1 {
		return name, false
	}
	return list[0], true
}

// choices are the models that the command /model may choose, the agent's own first.
func choices(set *agentdir.Agent) (list []string) {
	own, err := set.Get("pai.model")
	if err == nil && own.Origin != "default" {
		name := own.Value
		if p, err := set.Get("pai.provider"); err == nil && p.Origin != "default" {
			name = p.Value + "/" + name
		}
		list = append(list, name)
	}
	return append(list, set.Fallbacks...)
}

// withFields is a content with fields set; one that is no object stays as it is.
func withFields(content string, set map[string]any) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(content), &fields) != nil || fields == nil {
		return content
	}
	all := map[string]any{}
	for k, v := range maps.All(fields) {
		all[k] = v
	}
	maps.Copy(all, set)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(all) != nil || out.Len() > thread.MaxEvent {
		return content
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}
