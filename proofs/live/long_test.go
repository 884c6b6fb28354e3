//go:build proof

package live_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A blow is where in a step of a long turn the process is killed.
type blow int

const (
	none         blow = iota
	beforeAnswer      // the model was asked and has not answered
	afterAnswer       // it has answered: in window C, or a moment later
	inTool            // the tool has had its effect and has not ended
)

// long is the script of one turn: so many tool calls, one after the other, then
// a reply.
type long struct {
	rounds int
	blows  map[int]blow // by round, from 1
	chance func() time.Duration

	mu      sync.Mutex
	asked   map[int]int // calls of the model, by round
	given   map[int]int // answers, by round
	doubts  int         // tools the model was told to be in doubt, in the last call
	strikes map[int]bool
	latest  int          // round that the model was asked last
	late    *lateKill    // nil: none is due
	passed  map[int]bool // rounds in which a kill may have come that was due in an earlier one
}

// lateKill is a kill that is due in a moment.
type lateKill struct{ now, done chan struct{} }

// forestall has a kill that is still due come before the next one, or the end of the turn:
// else it could hit the round of another blow before that one falls. It reports whether there
// was one; then the process that asks is dead.
func (l *long) forestall(round int) bool {
	l.mu.Lock()
	k := l.late
	if k == nil || round <= l.rounds && (l.blows[round] == none || l.strikes[round]) {
		l.mu.Unlock()
		return false
	}
	l.late = nil
	l.mu.Unlock()
	close(k.now)
	<-k.done
	return true
}

// strike tells, once for each round, that its blow is due.
func (l *long) strike(round int, b blow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.blows[round] == b && !l.strikes[round]
	l.strikes[round] = l.strikes[round] || due
	return due
}

// command has an effect that can be counted. Where the process is to die in it,
// it says that it has had it and does not end.
func (l *long) command(round int) string {
	text := fmt.Sprintf("echo %d $TOOL_IDEMPOTENCY_KEY >> ran.txt", round)
	if l.blows[round] == inTool {
		text += fmt.Sprintf("; echo %d > begun; cat never", round)
	}
	return text
}

// TestLongTurn kills the process twenty times (STRIKES), at another step of one turn.
// What is committed is neither asked for nor run again, what may have run is told
// to the model, progress forgives the crashes, and there is one reply.
func TestLongTurn(t *testing.T) {
	seed, chance := drill.Seed(t)
	kills := drill.Size(t, "STRIKES", 20)
	ttl := drill.Span(t, "TTL", 5*time.Second)
	for _, shape := range shapes(t) {
		t.Run(shape, func(t *testing.T) {
			l := &long{
				rounds: max(40, 2*kills), blows: map[int]blow{}, asked: map[int]int{}, given: map[int]int{}, strikes: map[int]bool{}, passed: map[int]bool{},
				chance: func() time.Duration { return time.Duration(chance.Int64N(int64(30 * time.Millisecond))) },
			}
			for i, n := range chance.Perm(l.rounds - 4)[:kills] { // the last ones may be over before a kill comes
				l.blows[n+1] = beforeAnswer + blow(i%3)
			}
			longTurn(t, l, shape, ttl, seed)
		})
	}
}

func longTurn(t *testing.T, l *long, shape string, ttl time.Duration, seed uint64) {
	var r *runtime
	m := &model{answer: func(w http.ResponseWriter, _ *http.Request, body string) {
		round := strings.Count(body, `"role":"tool"`) + 1
		if l.forestall(round) {
			return
		}
		l.mu.Lock()
		l.asked[round]++
		l.latest = round
		l.doubts = strings.Count(body, "outcome unknown, verify before repeating")
		l.mu.Unlock()
		if l.strike(round, beforeAnswer) {
			r.kill()
			return
		}
		l.mu.Lock()
		l.given[round]++
		l.mu.Unlock()
		if round > l.rounds {
			say(w, "all done")
			return
		}
		call(w, fmt.Sprint("c", round), l.command(round))
		if l.strike(round, afterAnswer) {
			k := &lateKill{now: make(chan struct{}), done: make(chan struct{})}
			l.mu.Lock()
			l.late = k
			l.mu.Unlock()
			select {
			case <-time.After(l.chance()): // the injury, not a wait: any instant will do
			case <-k.now:
			}
			l.mu.Lock()
			l.passed[l.latest], l.passed[l.latest+1] = true, true // a round takes 5 to 10 ms
			l.mu.Unlock()
			r.kill()
			l.mu.Lock()
			if l.late == k {
				l.late = nil
			}
			l.mu.Unlock()
			close(k.done)
		}
	}}
	r = work(t, m, shape, "--lease-ttl", ttl.String())
	r.Create(t, agent, quiet+r.agents)
	begun, never := filepath.Join(r.workdir, "begun"), filepath.Join(r.workdir, "never")
	for _, p := range []string{begun, never} {
		if err := errors.Join(unix.Mkfifo(p, 0o600), os.Chmod(p, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	// Open for both, so that it has no end between two writers.
	tools, err := os.OpenFile(begun, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	defer g.Wait()
	defer func() { _ = tools.Close() }()
	g.Go(func() {
		for s := bufio.NewScanner(tools); s.Scan(); {
			round := 0
			if _, err := fmt.Sscan(s.Text(), &round); err != nil || !l.strike(round, inTool) {
				t.Errorf("a tool that was to be killed began again: %q", s.Text())
			}
			r.kill()
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	turn := r.await(ctx, agent, r.push(ctx, agent, "bob", "do it"))
	if turn.GetFate() != replied || replies(t, r.Client, agent, turn.GetThreadId()) != 1 || r.Reply(t, turn) != "all done" {
		t.Fatalf("after %d kills: %v", r.killed(), turn)
	}
	l.account(t, r, turn, shape, seed)
}

// account holds the journal of the turn against what the provider and the tools
// have seen.
func (l *long) account(t *testing.T, r *runtime, turn *registryv1.Turn, shape string, seed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ran := map[string]int{}
	data, err := os.ReadFile(filepath.Join(r.workdir, "ran.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		_, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		ran[key]++
	}
	answers, tools, doubts, rerun := 0, 0, 0, 0
	for _, s := range turn.GetSteps() {
		n := ran[turn.GetKey()+":"+s.GetKey()]
		rerun += max(n-1, 0)
		switch {
		case s.GetKind() == registryv1.StepKind_STEP_KIND_MODEL:
			answers++
		case s.GetState() == registryv1.StepState_STEP_STATE_DONE && n == 1:
			tools++
		case s.GetState() == registryv1.StepState_STEP_STATE_IN_DOUBT && n <= 1:
			tools, doubts = tools+1, doubts+1
		default:
			t.Errorf("the tool ran %d times: %v", n, s)
		}
	}
	repeated := 0
	for round := 1; round <= l.rounds+1; round++ {
		again := l.given[round] - 1
		repeated += again
		if most := map[bool]int{true: 1}[l.blows[round] == afterAnswer || l.passed[round]]; again < 0 || again > most {
			t.Errorf("round %d (blow %d): %d answers were given", round, l.blows[round], l.given[round])
		}
		if most := l.given[round] + map[bool]int{true: 1}[l.blows[round] == beforeAnswer || l.passed[round]]; l.asked[round] > most {
			t.Errorf("round %d (blow %d): asked %d times for %d answers", round, l.blows[round], l.asked[round], l.given[round])
		}
	}
	if answers != l.rounds+1 || tools != l.rounds || r.killed() != len(l.blows) || l.doubts != doubts {
		t.Errorf("%d answers and %d tools of %d rounds, %d kills of %d, %d in doubt of which the model knows %d",
			answers, tools, l.rounds, r.killed(), len(l.blows), doubts, l.doubts)
	}
	drill.Line("long-turn process=%s steps=%d kills=%d answers=%d asked_again=%d tools=%d in_doubt=%d rerun=%d crash_attempts=%d seed=%d",
		shape, answers+tools, r.killed(), answers, repeated, tools, doubts, rerun, turn.GetCrashAttempts(), seed)
}
