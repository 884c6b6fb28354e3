package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One simulated hour per seed: four holders over one table and a network that
// delays, loses and breaks; the registry restarts. At no instant do two of them
// trust the resource, and a trusted holder's token is the table's.
func TestSimulatedHolders(t *testing.T) {
	const seeds = 6
	grants, losses := 0, 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := &simulation{t: t, ledger: newLedger(), trusted: make(map[*Keeper]bool), until: time.Now().Add(time.Hour)}
			s.table = newTable(t, s.ledger, nil)
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			var wg sync.WaitGroup
			for i := range 4 {
				r := rand.New(rand.NewPCG(rng.Uint64(), 2))
				wg.Go(func() { s.live(fmt.Sprintf("h%d", i), r) })
			}
			for time.Now().Before(s.until) {
				time.Sleep(time.Duration(rng.IntN(400)) * time.Second)
				s.restart()
			}
			wg.Wait()
			grants, losses = grants+s.grants, losses+s.losses
		})
	}
	t.Logf("%d simulated hours, %d terms, %d of them lost to the network", seeds, grants, losses)
	if grants < 100*seeds || losses < 10*seeds {
		t.Errorf("%d terms and %d losses show nothing", grants, losses)
	}
}

type simulation struct {
	t      *testing.T
	ledger *memLedger
	until  time.Time

	mu             sync.Mutex
	table          *Table
	trusted        map[*Keeper]bool
	grants, losses int
}

// restart ends the registry between two calls, never within one.
func (s *simulation) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = newTable(s.t, s.ledger, nil)
}

// call is one call to whichever registry runs.
func (s *simulation) call(f func(*Table) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(s.table)
}

// look asks all keepers at one instant whether they would act now.
func (s *simulation) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	acting := 0
	for k := range s.trusted {
		if k.Check() != nil {
			continue
		}
		acting++
		if err := s.table.Check("agent/a", k.Token()); err != nil {
			s.t.Errorf("token %d is trusted and not the table's: %v", k.Token(), err)
		}
	}
	if acting > 1 {
		s.t.Errorf("%d holders would act at once", acting)
	}
}

func (s *simulation) live(holder string, rng *rand.Rand) {
	for n := 0; time.Now().Before(s.until); n++ {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		sent := time.Now()
		var r Record
		if s.call(func(t *Table) (err error) {
			r, err = t.Acquire(s.t.Context(), ask(holder, fmt.Sprint(holder, n)))
			return err
		}) != nil {
			continue
		}
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Millisecond) // the answer's way
		k := Keep(s.t.Context(), &lossy{s: s, holder: holder, rng: rand.New(rand.NewPCG(rng.Uint64(), 3))}, Grant{Resource: r.Resource, Token: r.Token, TTL: r.TTL, Sent: sent}, Options{})
		s.mu.Lock()
		s.grants++
		s.trusted[k] = true
		s.mu.Unlock()
		work := time.After(time.Duration(rng.IntN(60)) * time.Second)
		for busy := true; busy; {
			s.look()
			select {
			case <-k.Context().Done():
				busy = false
			case <-work:
				busy = false
			case <-time.After(time.Second):
			}
		}
		s.mu.Lock()
		if errors.Is(k.Check(), ErrLost) {
			s.losses++
		}
		delete(s.trusted, k)
		s.mu.Unlock()
		k.Stop()
		if rng.IntN(2) == 0 { // else it went without a word
			_ = s.call(func(t *Table) error { return t.Release(s.t.Context(), r.Resource, r.Token) })
		}
	}
}

// lossy is a network with moods.
type lossy struct {
	s      *simulation
	holder string
	rng    *rand.Rand
}

func (l *lossy) Renew(ctx context.Context, resource string, token uint64) (RenewReply, error) {
	there, back := time.Duration(l.rng.IntN(3000)), time.Duration(l.rng.IntN(3000))
	if l.rng.IntN(2) == 0 {
		back *= 10
	}
	wait := func(ms time.Duration) error {
		select {
		case <-time.After(ms * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(there); err != nil {
		return RenewReply{}, err
	}
	var r Record
	if err := l.s.call(func(t *Table) (err error) {
		r, err = t.Renew(resource, l.holder, token)
		return err
	}); err != nil {
		return RenewReply{}, err
	}
	if err := wait(back); err != nil {
		return RenewReply{}, err
	}
	return RenewReply{TTL: r.TTL}, nil
}
