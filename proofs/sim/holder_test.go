//go:build proof

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
)

var (
	errDropped = errors.New("the call was lost")
	errKilled  = errors.New("the process was killed")
	errDrained = errors.New("the process begins nothing new")
)

// order is what an operator does to a process.
type order int

const (
	none order = iota
	drain
	kill
)

// holder is one process that takes a resource, works, and has accidents.
//
//	wait --told or swept--> term --ok--> release or go silent --> wait
//	  |                       |--error--> back off, look again --> wait
//	  +------ drain, kill ----+--> start again under a new name --> wait
type holder struct {
	*site
	process, resource string
	name              string // of this start of the process
	starts            int
	chance, network   *rand.Rand
	work              func(ctx context.Context, e store.Engine, f store.Fence) error
	asleep            atomic.Int64 // until then

	told, swept chan struct{}
	orders      chan order
	under       order // the order that is being followed
	bySweep     bool  // nobody but the sweep spoke of work
}

// Renew carries a renewal over a bad network.
func (h *holder) Renew(ctx context.Context, resource string, token uint64) (lease.RenewReply, error) {
	pause(ctx, time.Until(time.Unix(0, h.asleep.Load()))) // a stopped process renews nothing
	luck := h.network.IntN(8)
	if luck == 0 {
		h.drop()
		return lease.RenewReply{}, errDropped
	}
	h.calls.RLock()
	_, err := h.table.Renew(resource, h.name, token)
	h.calls.RUnlock()
	if luck == 1 {
		h.drop()
		return lease.RenewReply{}, errDropped // the answer was lost
	}
	return lease.RenewReply{}, err
}

func (h *holder) drop() { h.count(func(c *counts) { c.lostCalls++ }) }

// pause lets simulated time pass.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// trouble is what may come between two steps of a term.
func (h *holder) trouble(label string, k *lease.Keeper) error {
	select {
	case h.under = <-h.orders:
	default:
	}
	fresh := label == "open" || label == "T1" || label == "D1"
	switch {
	case h.under == kill:
		return errKilled
	case h.under == drain && fresh: // what runs may finish
		return errDrained
	case fresh && label != "open" && h.bySweep:
		h.bySweep = false
		h.count(func(c *counts) { c.swept++ })
	}
	switch luck := h.chance.IntN(40); {
	case luck == 0: // the process stops past the ttl, and goes on as if nothing had been
		h.count(func(c *counts) { c.stalls++ })
		stop := ttl + time.Duration(h.chance.IntN(2000))*time.Millisecond
		h.asleep.Store(time.Now().Add(stop).UnixNano())
		time.Sleep(stop)
		return nil // it does not even look at its lease: the fence has to
	case luck <= 2:
		h.drop()
		return errDropped
	default:
		time.Sleep(time.Duration(h.chance.IntN(60)) * time.Millisecond)
		return k.Check()
	}
}

type termKey struct{}

// live works whenever there is word of work, until ctx ends.
func (h *holder) live(ctx context.Context) {
	h.start()
	failed := 0
	for n := 0; ctx.Err() == nil; n++ {
		h.bySweep = false
		select {
		case <-ctx.Done():
			return
		case h.under = <-h.orders:
			h.leave(ctx, lease.Record{})
			continue
		case <-h.told:
		case <-h.swept:
			h.bySweep = true
		}
		pause(ctx, time.Duration(h.chance.IntN(50))*time.Millisecond)
		switch err := h.term(ctx, n); {
		case h.under != none:
		case err == nil:
			failed = 0
		default: // it tries again by itself, after a while, or leaves it to the sweep
			failed = min(failed+1, 5)
			pause(ctx, time.Duration(h.chance.IntN(200<<failed))*time.Millisecond)
			if h.chance.IntN(4) > 0 {
				ring(h.told)
			}
		}
	}
}

func (h *holder) start() {
	h.starts++
	h.name = fmt.Sprintf("%s.%d", h.process, h.starts)
}

// term is one lease: taken, used for a few rounds, and given back, or not.
func (h *holder) term(ctx context.Context, n int) error {
	sent := time.Now()
	r, err := h.acquire(ctx, h.resource, h.name, fmt.Sprint(h.name, n))
	if err != nil {
		return nil // another one has it, and the work with it
	}
	k := lease.Keep(ctx, h, lease.Grant{Resource: r.Resource, Token: r.Token, TTL: r.TTL, Sent: sent}, lease.Options{})
	term := context.WithValue(context.WithoutCancel(ctx), termKey{}, func(label string) error { return h.trouble(label, k) })
	for range 3 {
		if err = h.work(term, locked{s: h.site}, store.Fence{Resource: r.Resource, Token: r.Token}); err != nil {
			break
		}
	}
	if errors.Is(err, store.ErrLeaseLost) {
		h.count(func(c *counts) { c.refused++ })
	}
	k.Stop()
	h.tell("deliver/a") // of what it has said
	switch {
	case h.under != none:
		h.leave(ctx, r)
	case h.chance.IntN(3) > 0: // else it went without a word
		h.release(term, r)
	}
	return err
}

func (h *holder) release(ctx context.Context, r lease.Record) {
	h.calls.RLock()
	_ = h.table.Release(ctx, r.Resource, r.Token)
	h.calls.RUnlock()
}

// leave ends the process as it was ordered and starts it again. One that drains
// gives its lease back; one that was killed is known to be dead by its lock.
// Either way nobody waits for the ttl.
func (h *holder) leave(ctx context.Context, r lease.Record) {
	h.mu.Lock()
	if h.under == kill {
		h.kills++
	} else {
		h.drains++
	}
	if r.Token != 0 && h.highest[r.Resource] == r.Token {
		h.left[r.Resource] = time.Now()
	}
	h.mu.Unlock()
	if h.under == drain && r.Token != 0 {
		h.release(context.WithoutCancel(ctx), r)
	}
	h.mu.Lock()
	h.dead[h.name] = true
	h.mu.Unlock()
	h.tell(h.resource) // there may be work left
	h.under = none
	pause(ctx, time.Duration(200+h.chance.IntN(3000))*time.Millisecond)
	h.start()
	ring(h.told) // it looks when it starts
}
