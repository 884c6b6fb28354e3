package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Account looks at everything once all work is done: each acknowledged push has
// one fate and, replied or merged into one that is, one reply, in the order of the inbox; no effect ran
// twice; each reply arrived, and every repeat carries the flag; the chains
// verify. report is called for each violation.
func (s *Scenario) Account(ctx context.Context, e store.Engine, verify func(store.Ref) error, report func(format string, args ...any)) (Figures, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fig := Figures{Messages: len(s.acked), InDoubt: s.doubt}
	bad := func(count *int, format string, args ...any) {
		*count++
		report(format, args...)
	}
	inbox, err := e.Read(ctx, store.Inbox(Agent), store.Query{Limit: 1 << 20, MaxBytes: 1 << 30})
	if err != nil {
		return fig, err
	}
	for n, id := range s.acked {
		i := slices.IndexFunc(inbox.Events, func(ev thread.Event) bool { return ev.ID == id })
		if i < 0 || inbox.Events[i].Content != fmt.Sprintf(`{"text":"m%d"}`, n) {
			bad(&fig.Lost, "message %d was acknowledged as event %d and is not there", n, id)
		}
	}
	if len(inbox.Events) == 0 {
		return fig, nil
	}
	var want []string // conversation in its order
	for _, ev := range inbox.Events {
		t, err := e.Turn(ctx, Agent, store.TurnQuery{InboxID: ev.ID, Route: func(thread.Event, string) (string, error) { return Thread, nil }})
		switch {
		case err != nil:
			return fig, err
		case t.Fate == store.FateReplied:
			fig.Replies++
			want = append(want, ev.Content)
		case t.Fate == store.FateMerged:
			fig.Merged++
			want = append(want, ev.Content)
			id, _ := thread.KeyID(t.Leader)
			leader, err := e.Turn(ctx, Agent, store.TurnQuery{InboxID: id, Route: func(thread.Event, string) (string, error) { return Thread, nil }})
			if err != nil || id >= ev.ID || leader.Key != t.Leader || leader.Fate != store.FateReplied {
				bad(&fig.Lost, "event %d was merged into %q, which is %q: %v", ev.ID, t.Leader, leader.Fate, err)
			}
		case t.Fate == store.FateDead:
			fig.Dead++
			want = append(want, ev.Content)
		default:
			bad(&fig.Lost, "event %d has fate %q", ev.ID, t.Fate)
		}
	}
	talk, err := e.Read(ctx, store.Ref{Agent: Agent, Thread: Thread}, store.Query{Limit: 1 << 20, MaxBytes: 1 << 30})
	if err != nil {
		return fig, err
	}
	replies := map[string]int{}
	var came []string
	for _, ev := range talk.Events {
		switch {
		case ev.Type != thread.TypeMessage:
		case ev.Source == thread.SourceSelf:
			replies[ev.Content]++
		default:
			came = append(came, ev.Content)
		}
	}
	if !slices.Equal(came, want) {
		bad(&fig.Violations, "the thread has %d messages, the inbox %d, or their order differs", len(came), len(want))
	}
	for text, n := range replies {
		if n != 1 {
			bad(&fig.Dup, "%d replies %s", n, text)
		}
	}
	if len(replies) != fig.Replies {
		bad(&fig.Violations, "%d replies, %d messages with the fate replied", len(replies), fig.Replies)
	}
	for key, n := range s.ran {
		if n > 1 {
			bad(&fig.Violations, "the effect %s ran %d times", key, n)
		}
	}
	for key, n := range s.sink {
		fig.Repeats += n - 1
		if s.plain[key] > 1 {
			bad(&fig.Dup, "%d arrivals of %s are not marked as repeats", s.plain[key], key)
		}
		if replies[s.texts[key]] == 0 {
			bad(&fig.Violations, "%s was sent and is in no thread", s.texts[key])
		}
	}
	if len(s.sink) != len(replies) {
		bad(&fig.Lost, "%d replies arrived of %d", len(s.sink), len(replies))
	}
	for _, r := range []store.Ref{store.Inbox(Agent), {Agent: Agent, Thread: Thread}} {
		if err := verify(r); err != nil && !errors.Is(err, store.ErrNotFound) {
			bad(&fig.Violations, "%s: %v", r, err)
		}
	}
	return fig, nil
}
