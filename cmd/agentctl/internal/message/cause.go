package message

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Wait is what a message waits for before its next try; the zero value is no wait.
type Wait struct {
	// Cause is a sentence without an end, such as "the model provider openai cannot be
	// reached: connection refused".
	Cause string
	// Next is when the next try is; empty when that is not known.
	Next string
}

// String is both; empty when there is no wait.
func (w Wait) String() string {
	if w.Cause == "" || w.Next == "" {
		return w.Cause
	}
	return w.Cause + "; " + w.Next
}

// Fit is both in a number of columns: the cause is cut, the time is not.
func (w Wait) Fit(columns int) string {
	if w.Cause == "" || w.Next == "" {
		return text.Snip(w.Cause, columns, "…")
	}
	return text.Snip(w.Cause, max(columns-len("; ")-len(w.Next), 1), "…") + "; " + w.Next
}

// Waiting says what a turn waits for before its next try; empty when it does not wait.
func Waiting(t *registry.Turn, now time.Time) string { return WaitOf(t, nil, now).String() }

// WaitOf is what a turn waits for: its own next try, or that of the turn before it in its
// conversation, which may be nil.
func WaitOf(t, ahead *registry.Turn, now time.Time) Wait {
	w := ownWait(t, now)
	if w.Cause != "" || t.GetState() != registry.TurnState_TURN_STATE_QUEUED || ahead.GetThreadId() != t.GetThreadId() {
		return w
	}
	if w = ownWait(ahead, now); w.Cause != "" {
		w.Cause = fmt.Sprintf("message %d of the same conversation comes first: %s", ahead.GetInboxId(), w.Cause)
	}
	return w
}

func ownWait(t *registry.Turn, now time.Time) (w Wait) {
	if t.GetState() != registry.TurnState_TURN_STATE_WAITING {
		return w
	}
	cause, away := Cause(t.GetError())
	a := t.GetAttempts()
	switch {
	case away:
		w.Cause = cause
	case len(a) > 0 && !a[len(a)-1].GetCounted():
		w.Cause = "no model is available"
	default:
		w.Cause = "the last try failed"
	}
	if !away && cause != "" {
		w.Cause += ": " + cause
	}
	if t.GetNextAt() == nil {
		return w
	}
	switch left := t.GetNextAt().AsTime().Sub(now); {
	case left <= 0:
		w.Next = "trying again now"
	case left < 2*time.Minute:
		w.Next = fmt.Sprintf("next try in %d s", max(left.Round(time.Second), time.Second)/time.Second)
	default:
		w.Next = fmt.Sprintf("next try in %d min", left.Round(time.Minute)/time.Minute)
	}
	return w
}

// away are the classes of failures after which a provider is waited for, as the journal
// writes them (package model of the runner), and what they say of the provider.
var away = []struct{ class, words string }{
	{"provider unreachable", "cannot be reached"},
	{"provider failed", "is not available"},
	{"rate limited", "limits the rate of calls"},
}

// Cause is the error of a failed try in a sentence without an end. waits is true when the
// provider is away and the message waits for it.
//
//	provider unreachable: openai: no connection to the endpoint: connect: connection refused
//	the model provider openai cannot be reached: connection refused
func Cause(err string) (cause string, waits bool) {
	err = strings.TrimSpace(err)
	for _, a := range away {
		rest, ok := strings.CutPrefix(err, a.class)
		if !ok {
			continue
		}
		status, rest, ok := strings.Cut(rest, ": ")
		if !ok { // the class alone
			return "the model provider " + a.words, true
		}
		provider, why, named := strings.Cut(rest, ": ")
		if !named {
			provider, why = "", rest
		}
		for _, words := range []string{"no connection to the endpoint: ", "connect: "} {
			why = strings.TrimPrefix(why, words)
		}
		return strings.Join(strings.Fields("the model provider "+provider+" "+a.words+status), " ") + ": " + why, true
	}
	return err, false
}

// First is the first message of an agent without a fate; nil when there is none, or that is
// not known.
func First(ctx context.Context, e *command.Env, agent string) *registry.Turn {
	s, err := e.Agents().GetAgentStatus(ctx, &registry.GetAgentStatusRequest{AgentId: agent})
	if err != nil || s.GetInbox().GetPending() == 0 {
		return nil
	}
	r, err := e.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: agent, InboxId: s.GetInbox().GetLastAckedId() + 1})
	if err != nil {
		return nil
	}
	return r.GetTurn()
}

// Ahead is the first message of an agent without a fate, when t is queued behind it in the
// same conversation; nil when it is not, or that is not known.
func Ahead(ctx context.Context, e *command.Env, t *registry.Turn) *registry.Turn {
	if t.GetState() != registry.TurnState_TURN_STATE_QUEUED {
		return nil
	}
	first := First(ctx, e, t.GetAgentId())
	if first.GetInboxId() == 0 || first.GetInboxId() >= t.GetInboxId() || first.GetThreadId() != t.GetThreadId() {
		return nil
	}
	return first
}
