package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/chat/transcript"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/agentctl/internal/turn"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// plain is the conversation as lines of text. What was said and done is on standard output,
// each with the name of who did it; what is waited for and what went wrong is on standard
// error. No line is drawn again and no reply comes in pieces: a screen reader reads each once.
type plain struct {
	talk
	calls context.Context // of what runs at the same time
	work  sync.WaitGroup
	e     *command.Env
	typed bool // at a terminal
	echo  bool // what is typed is not shown where the replies are
	lines chan inputLine
	msgs  chan tea.Msg

	end       error                // of the input
	asked     []*registry.Approval // commands that wait for a yes or no, oldest first
	questions asking               // that wait for an answer, oldest first
	later     []string             // texts typed during a run
	busy      bool                 // a message is under way
	id        int64                // of the message that waits for its fate; 0: none
	tools     map[string]string    // names of the running ones, by call id
	said      string               // by the run under way
	cause     string               // of the wait that was reported last
	prompt    bool                 // stands in the last line
	failed    bool
}

// runPlain holds the conversation until the input ends, or ctx, which aborts the run under way.
func runPlain(ctx context.Context, from *feed.Source) error {
	e := from.Env
	calls, cancel := context.WithCancel(ctx)
	in, _ := e.Terminal()
	p := &plain{
		talk:  talk{ctx: ctx, from: from},
		calls: calls, e: e, typed: e.Typed(), echo: in == nil,
		lines: make(chan inputLine), msgs: make(chan tea.Msg), tools: map[string]string{},
	}
	defer p.work.Wait()
	defer cancel()
	p.from.Send = func(m tea.Msg) {
		select {
		case p.msgs <- m:
		case <-calls.Done():
		}
	}
	for _, service := range []string{command.Registry, command.Runner} {
		p.work.Go(func() { p.from.Links(calls, service) })
	}
	p.work.Go(func() { p.from.Asks(calls) })
	p.work.Go(func() { p.from.Questions(calls) })
	go readLines(calls, e.In, p.lines) // a read of standard input ends with the process
	return p.run()
}

func (p *plain) run() error {
	stay := true
	for stay && (p.end == nil || len(p.later) > 0) {
		text, err := p.message()
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == "" || p.answered(text) {
			continue
		}
		if p.echo {
			p.say("you", text)
		}
		if name, rest, ok := slash(text); ok {
			stay = p.command(name, rest)
			continue
		}
		if stay, err = p.exchange(literal(text)); err != nil {
			return err
		}
	}
	switch {
	case p.end != nil && !errors.Is(p.end, io.EOF):
		return fmt.Errorf("read standard input: %w", p.end)
	case p.failed:
		return &command.ReportedError{}
	}
	return nil
}

// message is the next text: one that was typed during the last run, or the next line.
func (p *plain) message() (string, error) {
	if len(p.later) > 0 {
		text := p.later[0]
		if p.later = p.later[1:]; !p.echo {
			p.say("you", text)
		}
		return text, nil
	}
	p.ask("you: ")
	return p.next(nil)
}

// next shows what happens until a line was typed, or done is closed. From a pipe no line is
// read during a run, unless the agent asks something: it is the next message.
func (p *plain) next(done <-chan struct{}) (string, error) {
	for {
		lines := p.lines
		if p.end != nil || done != nil && len(p.asked)+len(p.questions) == 0 && !p.typed {
			lines = nil
		}
		select {
		case <-p.ctx.Done():
			p.abort()
			return "", p.ctx.Err()
		case <-done:
			return "", nil
		case m := <-p.msgs:
			p.show(m)
		case l := <-lines:
			p.end, p.prompt = l.err, false
			return l.text, nil
		}
	}
}

// exchange sends a message and shows its run until it has its fate. Meanwhile commands are
// carried out at once, and at a terminal other texts are kept; stay is false when the person
// leaves.
func (p *plain) exchange(text string) (stay bool, err error) {
	done := make(chan struct{})
	p.said, p.cause, p.busy = "", "", true
	defer func() { p.busy, p.id = false, 0 }()
	p.work.Go(func() {
		defer close(done)
		a, ok := p.from.Say(p.calls, feed.Message{Key: message.NewKey(), Text: text})().(feed.Accepted)
		if p.from.Send(a); ok && a.Err == nil {
			p.from.Send(p.from.Attend(p.calls, a.ID)())
		}
	})
	for {
		text, err := p.next(done)
		if err != nil {
			return false, err
		}
		name, rest, ok := slash(text)
		switch {
		case text == "" && closed(done):
			return true, nil
		case strings.TrimSpace(text) == "" && len(p.asked) == 0, p.answered(text):
		case ok:
			if !p.command(name, rest) {
				return false, nil
			}
		case len(p.asked) == 0 && len(p.questions) > 0:
			p.reply(literal(text))
		case len(p.asked) == 0:
			p.later = append(p.later, text)
			p.note("sent after this run: " + screen.Line(text))
		case p.end == nil:
			p.ask("y or n: ")
		}
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// show writes what the services report.
func (p *plain) show(m tea.Msg) {
	agent := p.from.Agent
	switch m := m.(type) {
	case feed.Accepted:
		if p.id = m.ID; m.Err != nil {
			p.problem(m.Err)
		}
	case feed.AbortResult:
		if m.Err != nil {
			p.problem(m.Err)
		}
	case feed.Changed:
		w := message.WaitOf(m.Turn, m.Ahead, time.Now())
		if w.Cause != "" && w.Cause != p.cause {
			p.note(agent + " waits: " + w.String())
		}
		p.cause = w.Cause
	case feed.Pieces:
		for _, i := range m.Items {
			p.piece(i)
		}
	case feed.Finished:
		p.newest = m.ID
		p.locate(m.Turn)
		switch {
		case m.OK:
			p.say(agent, m.Reply)
		case m.Err != nil && m.Turn.GetFate() == registry.Fate_FATE_ABORTED:
			p.unfinished() // the error has the same text again
			p.note(p.ended(m.ID))
			p.failed = true
		case m.Err != nil:
			p.unfinished()
			p.problem(m.Err)
		case turn.SentMessages(m.Turn) == 0:
			p.note("no reply: " + message.FateName(m.Turn.GetFate()))
		}
	case feed.Link:
		if !m.Up && p.ctx.Err() == nil {
			p.note("the " + m.Service + " does not answer; waiting for it")
		}
	case feed.ApprovalChange:
		p.question(m.Approval)
	case feed.QuestionChange:
		p.askPeer(m.Question)
	case feed.ResetResult:
		if m.Err != nil {
			p.problem(m.Err)
			return
		}
		if p.note(m.Note); m.Text != "" {
			p.later = append([]string{escaped(m.Text)}, p.later...)
		}
	case feed.CommandResult:
		if p.note(m.Text); m.Err != nil {
			p.problem(m.Err)
		}
	}
}

// piece is one thing that the run does.
func (p *plain) piece(i feed.Item) {
	agent := p.from.Agent
	switch i.What {
	case feed.Spoke:
		p.said += i.Text
	case feed.Began:
		p.said = ""
		if p.tools[i.CallID] != "" { // the run goes on, after a question for instance, and shows its call again
			break
		}
		if said, ok := message.ToPeer(i.Text); ok && i.Tool == "message_send" {
			p.say(agent, said)
		} else if name, about, _ := strings.Cut(i.Summary, " "); name != "" {
			p.tools[i.CallID] = name
			p.say(agent+" runs "+name, about)
		} else {
			p.tools[i.CallID] = i.Tool
			p.say(agent+" runs "+i.Tool, strings.TrimSpace(transcript.Gist(i.Text)))
		}
	case feed.Ended:
		if tool := p.tools[i.CallID]; tool != "" {
			r := transcript.ReadResult(i.Text)
			p.say(tool, strings.TrimSpace(map[bool]string{true: "ok", false: r.Fail}[r.Fail == ""]+"\n"+r.Text))
		}
		delete(p.tools, i.CallID)
	case feed.Again:
		p.said = ""
		p.note("the run goes on after an interruption")
	case feed.Digest:
		p.note(agent + " makes a digest of the conversation")
	default:
	}
}

// question shows a command that waits for a yes or no, once.
func (p *plain) question(a *registry.Approval) {
	same := func(b *registry.Approval) bool { return a.GetApprovalId() == b.GetApprovalId() }
	switch known := slices.ContainsFunc(p.asked, same); {
	case a.GetState() != registry.ApprovalState_APPROVAL_STATE_PENDING:
		p.asked = slices.DeleteFunc(p.asked, same)
	case !known:
		p.asked = append(p.asked, a)
		p.say(p.from.Agent+" asks whether it may run this, once ("+a.GetReason()+")", a.GetCommand())
		if text := always(a); text != "" {
			p.note(text)
		}
		p.ask(choices(a) + ": ")
	}
}

// answered takes an answer for the command that waits longest; false when there is none, or
// the text is neither.
func (p *plain) answered(text string) bool {
	d, ok := decision(text)
	return ok && p.answer(d)
}

// answer answers the command that waits longest; false when there is none.
func (p *plain) answer(d registry.ApprovalDecision) bool {
	if len(p.asked) == 0 {
		return false
	}
	id := p.asked[0].GetApprovalId()
	p.asked = p.asked[1:]
	p.show(p.from.Answer(p.ctx, id, d)())
	return true
}

// abort ends the run under way when the command is interrupted, and shows how far it came.
func (p *plain) abort() {
	if p.id == 0 {
		return
	}
	p.unfinished()
	r, _ := p.from.Abort(context.WithoutCancel(p.ctx), p.id)().(feed.AbortResult)
	if r.Err != nil {
		p.problem(r.Err)
		return
	}
	p.note("aborted")
}

func (p *plain) unfinished() {
	if p.said != "" {
		p.say(p.from.Agent+" (not finished)", p.said)
	}
}

// ask writes what stands before the input, at a terminal, on standard error.
func (p *plain) ask(prompt string) {
	if p.typed {
		p.fresh()
		fmt.Fprint(p.e.Err, prompt)
		p.prompt = true
	}
}

// fresh begins a line where a prompt stands.
func (p *plain) fresh() {
	if p.prompt {
		fmt.Fprintln(p.e.Err)
		p.prompt = false
	}
}

func (p *plain) say(who, text string) {
	p.fresh()
	fmt.Fprintf(p.e.Out, "%s: %s\n", screen.Line(who), strings.TrimRight(screen.Clean(text), "\n"))
}

func (p *plain) note(text string) {
	if text != "" {
		p.fresh()
		p.e.Note("%s", screen.Clean(text))
	}
}

func (p *plain) problem(err error) {
	p.fresh()
	p.e.Report(err)
	p.failed = true
}
