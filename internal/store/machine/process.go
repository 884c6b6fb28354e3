package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Process decides on a record of a process; old is the one that is stored, nil when there is none.
// It answers what to store, nil for nothing, and the event to push with it.
func Process(agent string, old *store.Process, p store.Process, token uint64, now time.Time) (save *store.Process, push *store.NewEvent, err error) {
	switch {
	case old == nil && p.State.Ended():
		return nil, nil, store.ErrNoProcess
	case old != nil && old.StepKey != p.StepKey:
		return nil, nil, store.ErrProcessTaken
	case old == nil:
		p.Token, p.StartedAt, p.EndedAt = token, now, time.Time{}
		return &p, nil, nil
	case old.State.Ended() || !p.State.Ended() && (p.State == old.State || p.State == store.ProcessStarting):
		return nil, nil, nil
	}
	next := *old
	next.State = p.State
	if !p.State.Ended() {
		return &next, nil, nil
	}
	next.Exit, next.Tail, next.Seen = p.Exit, p.Tail, old.Seen || p.Seen
	push = end(agent, &next, now)
	return &next, push, nil
}

// LostProcess gives up a process whose runner has ended.
func LostProcess(agent string, old store.Process, now time.Time) (save store.Process, push *store.NewEvent) {
	began := old.State == store.ProcessRunning
	old.State = store.ProcessLost
	push = end(agent, &old, now)
	if push != nil && !began {
		push.Content = processContent(fmt.Sprintf("process %s was ended by a restart; it may not have begun", old.ID), old.Event)
	}
	return old, push
}

// end ends a process now; the result is the event that says so, nil when none is due.
func end(agent string, p *store.Process, now time.Time) *store.NewEvent {
	p.EndedAt = now
	if p.Seen {
		return nil
	}
	return &store.NewEvent{
		Source: source.Address{Kind: source.Internal, ConvType: source.Process, ConvID: p.ID, AgentID: agent}.String(),
		Type:   thread.TypeMessage, Content: processContent(processText(p), p.Event),
		Origin: &store.Origin{Thread: p.Thread, Key: p.SessionKey, Cause: "process:" + p.ID},
	}
}

// ProcessKey is the key under which the event at the end of a process is remembered.
func ProcessKey(p store.Process) string { return "push:" + p.StepKey + ":exit" }

func processText(p *store.Process) string {
	after := p.EndedAt.Sub(p.StartedAt).Round(time.Second)
	var what string
	switch p.State {
	case store.ProcessExited:
		what = fmt.Sprintf("exited with code %d after %s", p.Exit, after)
	case store.ProcessKilled:
		what = fmt.Sprintf("was ended after %s", after)
	default:
		return fmt.Sprintf("process %s was ended by a restart after %s", p.ID, after)
	}
	text := fmt.Sprintf("process %s %s", p.ID, what)
	if tail := strings.TrimSpace(p.Tail); tail != "" {
		text += "; the end of its output:\n" + tail
	}
	return text
}

// processContent is the content of an event: the text, and what the first record has given.
func processContent(text, rest string) string {
	b := thread.AppendString([]byte(`{"text":`), text)
	if rest = strings.TrimSpace(rest); json.Valid([]byte(rest)) && len(rest) > 2 && rest[0] == '{' {
		return string(append(append(b, ','), rest[1:]...))
	}
	return string(append(b, '}'))
}
