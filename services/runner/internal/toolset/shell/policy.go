package shell

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// exec are the settings of the policy for a program; nil: there are none.
func (p program) exec(c *registrypb.TurnConfig) *registrypb.ExecPolicy {
	switch {
	case p.elevated:
		return c.GetElevated().GetExec()
	case p.ofHome:
		return c.GetPrograms().GetExec()
	}
	return c.GetExec()
}

// policy returns what decides on programs that leave the sandbox or have the network; false in
// the sandbox without the network, where nothing is refused or asked.
func policy(c *registrypb.TurnConfig, of program) (p execpolicy.Policy, ok bool) {
	e := of.exec(c)
	switch {
	case of.ofHome && !of.leaves(c):
		return p, false
	case e == nil:
		// A registry that does not know exec asks for each command, or lets all run.
		return execpolicy.Policy{Security: execpolicy.Full, Ask: execpolicy.AskAlways}, c.GetAskApproval() || of.elevated || of.ofHome
	}
	p = execpolicy.Policy{
		Security: execpolicy.Security(e.GetSecurity()), Ask: execpolicy.Ask(e.GetAsk()), Fallback: execpolicy.Security(e.GetAskFallback()), SafeBins: e.GetSafeBins(),
	}
	if of.elevated && c.GetElevated().GetMode() == elevatedFull && p.Security != execpolicy.Deny {
		p.Security, p.Ask = execpolicy.Full, execpolicy.AskOff
	}
	for _, entry := range e.GetAllowlist() {
		p.Allow = append(p.Allow, execpolicy.Entry{Pattern: entry.GetPattern(), Args: entry.GetArgs()})
	}
	return p, true
}

// elevatedOff and elevatedFull are modes in which the policy does not decide on elevated commands: they are refused, and
// they run.
const (
	elevatedOff  = "off"
	elevatedFull = "full"
)

// refusesElevated is why a command may not leave the sandbox; nil: it may ask to. It depends on who wrote the message of
// the turn.
func refusesElevated(c *registrypb.TurnConfig) error {
	switch e := c.GetElevated(); {
	case e == nil:
		return errors.New("nothing was run: elevated commands are not enabled (tools.elevated.enabled); run it without elevated")
	case !e.GetAllowed():
		return errors.New("nothing was run: the author of this message may not have elevated commands (tools.elevated.allow_from); run it without elevated")
	case e.GetMode() == "" || e.GetMode() == elevatedOff:
		return errors.New("nothing was run: elevated commands are off in this conversation; run it without elevated")
	}
	return nil
}

// decide decides on a call that was read. The verdict has the line that runs, without the
// change of directory. A call that was to be asked for when its intent was journaled is asked for
// now, too, and else the stricter of then and now counts.
func decide(c toolset.Call, of program) execpolicy.Verdict {
	p, ok := policy(c.Place.Config, of)
	switch {
	case !ok && !c.Asks:
		return execpolicy.Verdict{Action: execpolicy.Run, Text: of.text}
	case !ok:
		p.Security, p.Ask = execpolicy.Full, execpolicy.AskAlways
	}
	var host execpolicy.Host // an image has programs of its own, which no path of this machine names
	if !contained(c.Place.Config, of) {
		path := cmp.Or(of.command.Env["PATH"], sandbox.Path)
		host = execpolicy.System(path, filepath.Join(cmp.Or(of.command.Workspace, of.command.Workdir), of.cwd))
	}
	guard := c.Outside && c.Place.Config.GetExternalGuard().GetHost() && (of.elevated || c.Place.Config.GetSandboxMode() == string(sandbox.Off))
	v := p.Decide(of.text, host, guard)
	if c.Asks && v.Action == execpolicy.Run {
		p.Ask = execpolicy.AskAlways
		v = p.Decide(of.text, host, guard)
	}
	return v
}

// Class implements [toolset.Tool]. A command that the policy refuses runs nothing and reads.
func (t *Tool) Class(c toolset.Call) toolset.Class { return class(c, t.parse) }

// Asks implements [toolset.Asker].
func (t *Tool) Asks(c toolset.Call) bool { return asks(c, t.parse) }

func class(c toolset.Call, parse func(toolset.Call) (program, error)) toolset.Class {
	if v, ok := verdict(c, parse); ok && v.Action == execpolicy.Refuse {
		return toolset.Read
	}
	return toolset.Effect
}

func asks(c toolset.Call, parse func(toolset.Call) (program, error)) bool {
	v, ok := verdict(c, parse)
	return ok && v.Action == execpolicy.Question
}

// verdict decides on a call; false when its arguments are wrong, and nothing is decided.
func verdict(c toolset.Call, parse func(toolset.Call) (program, error)) (execpolicy.Verdict, bool) {
	if _, ok := policy(c.Place.Config, program{}); !ok && c.Place.Config.GetElevated() == nil {
		return execpolicy.Verdict{}, false
	}
	return judge(c, parse)
}

func judge(c toolset.Call, parse func(toolset.Call) (program, error)) (execpolicy.Verdict, bool) {
	p, err := parse(c)
	if err != nil {
		return execpolicy.Verdict{}, false
	}
	return decide(c, p), true
}

// summary is a command in one line for people.
func summary(command string) string {
	text, _ := boundary.Text(boundary.Name(command), maxSummary)
	return text
}

// maxUsed bounds the entries whose use is reported.
const maxUsed = 64

// used are the entries that have let a command run; nil: none.
func used(c *registrypb.TurnConfig, p program, v execpolicy.Verdict) *registrypb.ExecUse {
	if v.Action != execpolicy.Run || len(v.Used) == 0 {
		return nil
	}
	slices.Sort(v.Used)
	list := p.exec(c).GetAllowlist()
	out := &registrypb.ExecUse{Command: summary(p.shown)}
	for _, i := range slices.Compact(v.Used) {
		if len(out.GetEntries()) < maxUsed {
			out.Entries = append(out.Entries, list[i])
		}
	}
	return out
}
