package compact

import (
	"context"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Level is what a digest is about.
type Level int

// The levels, from the most often digested on.
const (
	Thread Level = iota + 1 // one conversation
	Peer                    // one peer in all conversations
	Agent                   // the agent itself
)

// Line is one thing that was said or done.
type Line struct{ Who, Text string }

// Input is what a digest is made of.
type Input struct {
	Level Level
	// Old is the digest so far; empty: the first one.
	Old   string
	Lines []Line
}

// Digest is the new memory.
type Digest struct {
	Text string
	// Lines that went in; older ones are left out of a digest that would take too
	// many calls.
	Lines    int
	Calls    int
	Usage    model.Usage
	Duration time.Duration
}

// Strategy makes digests.
type Strategy interface {
	// Name is the word in the settings.
	Name() string
	Digest(ctx context.Context, in Input) (Digest, error)
}

// Truncate forgets the lines: what was digested before stays as it is.
type Truncate struct{}

// Name is "truncate".
func (Truncate) Name() string { return "truncate" }

// Digest returns the old digest.
func (Truncate) Digest(_ context.Context, in Input) (Digest, error) {
	return Digest{Text: in.Old, Lines: len(in.Lines)}, nil
}

// Measure is what decides whether it is time.
type Measure struct {
	// Tokens the prompt wants, of Budget.
	Tokens, Budget int64
	// Turns whose messages are in no digest, this one included.
	Turns int
	// Undigested messages, this one included.
	Undigested int
	// Leaving: the message after the next pushes an undigested one out of the raw window.
	Leaving bool
}

// Limits are the settings that decide when a digest is due.
type Limits struct {
	AtPercent, AfterTurns int
}

// Due returns why it is time for a digest; empty when it is not (S0-113).
func Due(m Measure, l Limits) string {
	switch {
	case m.Undigested == 0: // nothing to gain
		return ""
	case l.AtPercent > 0 && m.Tokens*100 > m.Budget*int64(l.AtPercent):
		return "tokens"
	case l.AfterTurns > 0 && m.Turns >= l.AfterTurns:
		return "turns"
	case m.Leaving:
		return "window"
	}
	return ""
}
