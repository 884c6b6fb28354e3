package prompt_test

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/prompt"
)

// S2-43: a prompt has exactly as many earlier messages of people as the limit says, each with its answer; those
// before that are in no digest count as left out, so that they are digested.
func TestHistoryTurns(t *testing.T) {
	const turns = 120
	s := prompt.Scope{Inbound: prompt.Event{ID: 1000, Source: "external:console:cli:dm:u:u", Content: `{"text":"now"}`}}
	for n := range turns {
		s.Tail = append(s.Tail,
			prompt.Event{ID: int64(2*n + 1), Source: "external:console:cli:dm:u:u", Content: fmt.Sprintf(`{"text":"question %d"}`, n)},
			prompt.Event{ID: int64(2*n + 2), Source: "self", Content: fmt.Sprintf(`{"text":"answer %d"}`, n)})
	}
	for limit, want := range map[int]int{0: turns, 1: 1, 50: 50, 100: 100, 119: 119, 120: turns, 1000: turns} {
		s.Turns, s.Digested = limit, 0
		p := prompt.Standard().Build(s)
		if len(p.Messages) != 2*want+1 || p.Messages[0].Text != fmt.Sprintf("question %d", turns-want) || p.Messages[2*want].Text != "now" {
			t.Errorf("limit %d: %d messages, the first is %q", limit, len(p.Messages), p.Messages[0].Text)
		}
		if p.Dropped != 2*(turns-want) || p.Turns != turns+1 || p.Undigested != 2*turns {
			t.Errorf("limit %d: %d dropped, %d turns and %d messages in no digest", limit, p.Dropped, p.Turns, p.Undigested)
		}
		s.Digested, s.Keep = 2*turns, 1<<30
		if p := prompt.Standard().Build(s); len(p.Messages) != 2*want+1 || p.Dropped != 0 {
			t.Errorf("limit %d, all in a digest: %d messages, %d dropped", limit, len(p.Messages), p.Dropped)
		}
	}
}
