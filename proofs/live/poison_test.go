//go:build proof

package live_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// crashes and aloneAfter are RELIABILITY 5: a message is dead after so many
	// crashes, and from its second try on nothing else runs beside it.
	crashes, aloneAfter = 5, 1
	// patience bounds what is bound to happen.
	patience = 3 * time.Minute
)

// TestPoison sends a message that kills the process in which its turn runs, each
// time, among ten that do nothing bad. It dies alone after five crashes of its
// own, none of the others dies with it, and what waits behind it is answered
// soon after its death: with everything in one process, with a runner that dies
// alone, and on a site with all of its runners.
func TestPoison(t *testing.T) {
	innocents := drill.Size(t, "N", 10)
	ttl := drill.Span(t, "TTL", 5*time.Second)
	for _, shape := range shapes(t) {
		t.Run(shape, func(t *testing.T) { poison(t, innocents, ttl, shape) })
	}
}

// victims are the innocents: which of them the model holds, and which of them
// have been sent.
type victims struct {
	mu      sync.Mutex
	arrived *sync.Cond
	working map[int]int // model calls under way, by the crashes before them
	sent    map[string][]int64
}

// hold counts an innocent in while it is worked on.
func (v *victims) hold(crash, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.working[crash] += by
	v.arrived.Broadcast()
}

func poison(t *testing.T, innocents int, ttl time.Duration, shape string) {
	v := &victims{working: map[int]int{}, sent: map[string][]int64{}}
	v.arrived = sync.NewCond(&v.mu)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { v.hold(0, 0) })() // wakes who waits in vain

	var r *runtime
	agents := []string{agent, "a2"}
	flock := func(from int) { // innocents of peers of their own, over both agents
		for i := from; i < from+innocents; i++ {
			id := r.push(ctx, agents[i%2], fmt.Sprint("p", i), fmt.Sprint("harmless ", i))
			v.mu.Lock()
			v.sent[agents[i%2]] = append(v.sent[agents[i%2]], id)
			v.mu.Unlock()
		}
	}
	// strike is the killer at its crash-th time: the innocents are beside it.
	strike := func(crash int) {
		if crash > aloneAfter {
			v.mu.Lock()
			if n := v.working[crash-1]; n != 0 {
				t.Errorf("crash %d: %d innocents are worked on beside it", crash, n)
			}
			v.mu.Unlock()
			flock(crash * 100)
		} else {
			v.mu.Lock()
			for v.working[crash-1] < innocents && ctx.Err() == nil {
				v.arrived.Wait()
			}
			v.mu.Unlock()
		}
		r.kill()
	}
	m := &model{answer: func(w http.ResponseWriter, req *http.Request, body string) {
		crash := r.killed()
		if last(body, "poison") {
			strike(crash + 1)
			return
		}
		v.hold(crash, 1)
		if crash < aloneAfter && !strings.Contains(body, "harmless next") {
			<-req.Context().Done() // until it dies with the killer
		} else {
			say(w, "ok")
		}
		v.hold(crash, -1)
	}}
	r = work(t, m, shape, "--lease-ttl", ttl.String())
	for _, id := range agents {
		r.Create(t, id, quiet+r.agents)
	}
	flock(0)
	bad := r.push(ctx, agent, "eve", "poison")
	next := r.push(ctx, agent, "eve", "harmless next")

	end, after := r.await(ctx, agent, bad), r.await(ctx, agent, next)
	kills := r.killed()
	if end.GetFate() != registryv1.Fate_FATE_DEAD || kills != crashes || end.GetCrashAttempts() != crashes {
		t.Errorf("after %d kills: %v", kills, end)
	}
	if after.GetFate() != replied || after.GetInboundEventId() < end.GetErrorEventId() {
		t.Errorf("the next message: %v, after %v", after, end)
	}
	took := after.GetFinishedAt().AsTime().Sub(end.GetFinishedAt().AsTime())
	if took > 2*ttl {
		t.Errorf("the next message was answered %v after the death, more than twice %v", took, ttl)
	}
	good, most, sent := 0, int32(0), 0
	for id, ids := range v.sent {
		for _, n := range ids {
			sent++
			turn := r.await(ctx, id, n)
			most = max(most, turn.GetCrashAttempts()-1) // the last claim has not crashed
			if turn.GetFate() == replied && replies(t, r.Client, id, turn.GetThreadId()) == 1 {
				good++
			} else {
				t.Errorf("an innocent: %v", turn)
			}
		}
	}
	if want := innocents * (1 + crashes - aloneAfter); sent != want || most < aloneAfter {
		t.Errorf("%d innocents, want %d; they saw %d crashes, want %d or, with leases lost, more", sent, want, most, aloneAfter)
	}
	drill.Line("poison process=%s kills=%d crash_attempts=%d others=%d answered=%d/%d innocent_crashes=%d next_ms=%d bound_ms=%d",
		shape, kills, end.GetCrashAttempts(), innocents, good, sent, most,
		took.Milliseconds(), (2 * ttl).Milliseconds())
}
