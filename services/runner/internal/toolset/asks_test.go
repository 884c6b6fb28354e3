package toolset_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// asker asks before calls with an odd number.
type asker struct{ scripted }

func (asker) Asks(c toolset.Call) bool { return number(c)%2 == 1 }

// S2-15: what asks is journaled with the intent and stays so. After a crash an effect that waited
// for a person, with no approval used (TA1, TA2), is made; one whose approval was used (TA3), and
// every other effect that may have begun, is in doubt and does not run.
func TestWaitsAreNotInDoubt(t *testing.T) {
	for _, c := range []struct {
		n        int // of the call that was open; the odd ones ask
		notBegun bool
		runs     bool
	}{{1, true, true}, {1, false, false}, {2, false, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			ran := 0
			tool := asker{scripted{name: "command", class: toolset.Effect, run: func(_ context.Context, n int, call toolset.Call) toolset.Result {
				if call.Asks != (n%2 == 1) {
					t.Errorf("call %d asks: %t", n, call.Asks)
				}
				if n == c.n {
					ran++
				}
				return toolset.Result{Text: "ran"}
			}}}
			made := answer("command", "command")
			calls, j := planned(t, made, tool)
			if j.Tool(key(1)).GetAsks() != true || j.Tool(key(2)).GetAsks() {
				t.Errorf("the intents: %v, %v", j.Tool(key(1)), j.Tool(key(2)))
			}
			if c.n == 2 { // the first has ended
				if _, err := calls.Use(t.Context(), key, made[:1], ""); err != nil {
					t.Fatal(err)
				}
			}
			j.Tool(key(c.n)).NotBegun = c.notBegun // as the registry says in BeginTurn
			if _, err := calls.Use(t.Context(), key, made, key(c.n)); err != nil {
				t.Fatal(err)
			}
			want := inDoubt
			if c.runs {
				want = done
			}
			if got := states(j, made)[c.n-1]; got != want || (ran == 1) != c.runs {
				t.Errorf("state %v, ran %d times", got, ran)
			}
		})
	}
}
