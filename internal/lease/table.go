package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// phase is where a resource stands; the drawing is in doc.go.
type phase uint8

const (
	free  phase = iota // nobody; nothing to report
	held               // granted; live until its deadline
	ended              // a term ended without a release; Reap will report it
)

// entry is one resource. Its fields are guarded by Table.mu.
type entry struct {
	// turn holds one element while somebody saves the resource. It is a channel
	// and no mutex so that waiting for it ends with the caller's context.
	turn     chan struct{}
	rec      Record
	phase    phase
	deadline time.Time // monotonic
}

func (e *entry) live(now time.Time) bool { return e.phase == held && now.Before(e.deadline) }

// extend moves the deadline; the caller knows that the term may live on.
func (e *entry) extend(now time.Time) {
	e.deadline = now.Add(e.rec.TTL)
	e.rec.Expires = e.deadline.Round(0) // wall only
}

// end marks a term as over without its holder's word.
func (e *entry) end() {
	e.phase = ended
	e.rec.YieldRequested = false
}

// Table is the authority on who may act now. Only the registry has one. It is
// safe for concurrent use. It runs no goroutine: expiry is judged when somebody
// asks, and Reap is there for callers that want a report.
type Table struct {
	ledger Ledger
	dead   func(holder string) bool

	// mu guards entries and what is in them. It is never held over I/O, so
	// Renew and Check wait for no disk.
	mu      sync.Mutex
	entries map[string]*entry
}

// NewTable loads the ledger. dead returns true only for a holder that certainly
// runs no more (HolderDead); nil means that nobody ever knows. It is called
// without a lock held, often, and must be quick.
//
// The table cannot know how much of a loaded term was left, so it gives it one
// whole ttl from now, unless its holder is dead: a live holder simply renews and
// keeps its token over a restart of the registry.
func NewTable(ctx context.Context, ledger Ledger, dead func(holder string) bool) (*Table, error) {
	if dead == nil {
		dead = func(string) bool { return false }
	}
	records, err := ledger.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load leases: %w", err)
	}
	t := &Table{ledger: ledger, dead: dead, entries: make(map[string]*entry, len(records))}
	gone := make(map[string]bool)
	for _, r := range records {
		if _, asked := gone[r.Holder]; !asked && !r.Released {
			gone[r.Holder] = dead(r.Holder)
		}
	}
	now := time.Now()
	for _, r := range records {
		e := t.entry(r.Resource)
		e.rec, e.rec.YieldRequested = r, false
		if r.TTL <= 0 {
			e.rec.TTL = DefaultTTL
		}
		switch {
		case r.Released:
		case gone[r.Holder]:
			e.end()
		default:
			e.phase = held
			e.extend(now)
		}
	}
	return t, nil
}

// entry finds or makes the entry of a resource. The caller holds mu, or is
// NewTable.
func (t *Table) entry(resource string) *entry {
	e := t.entries[resource]
	if e == nil {
		e = &entry{turn: make(chan struct{}, 1), rec: Record{Resource: resource}}
		t.entries[resource] = e
	}
	return e
}

// AcquireRequest asks for a resource.
type AcquireRequest struct {
	Resource, Holder, Address string
	// RequestID names this request over all its repeats. Required.
	RequestID string
	// TTL; 0 means DefaultTTL. It must exceed its own Margin.
	TTL time.Duration
	// Floor is the highest token that the resource's own inbox has ever seen
	// (its x_fence row). A directory that was moved or restored next to a
	// younger ledger gets a token above it all the same.
	Floor uint64
}

// Checked is the request with its defaults, for an authority; an error describes what is
// wrong with it.
func (r AcquireRequest) Checked() (AcquireRequest, error) {
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	switch {
	case r.Resource == "" || r.Holder == "" || r.RequestID == "":
		return r, errors.New("acquire lease: resource, holder and request id must not be empty")
	case r.TTL <= Margin(r.TTL):
		return r, fmt.Errorf("acquire lease: ttl %v leaves nothing to trust above its margin %v", r.TTL, Margin(r.TTL))
	case r.Floor >= math.MaxInt64: // a ledger and a fence keep it as a signed integer
		return r, fmt.Errorf("acquire lease %s: token %d is the last one", r.Resource, r.Floor)
	}
	return r, nil
}

// Acquire grants the resource or returns *HeldError. The answer to a grant is
// given after its token is on disk.
//
//   - live, same holder and same request id: the same term again. The deadline
//     moves as by a renewal, because the holder counts its trust from the repeat.
//   - live with another holder, or with the same holder under another request
//     id: *HeldError. The second case is on purpose: one process that asks twice
//     has two parts that would act at once, and a lost answer is repeated with
//     its own request id.
//   - free, expired, or its holder is dead: a new term with the token
//     max(last, Floor)+1.
//
// When the ledger fails nothing is granted, and the token is burned, since it
// may be on disk.
func (t *Table) Acquire(ctx context.Context, req AcquireRequest) (Record, error) {
	req, err := req.Checked()
	if err != nil {
		return Record{}, err
	}
	t.mu.Lock()
	e := t.entry(req.Resource)
	t.mu.Unlock()

	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return Record{}, fmt.Errorf("acquire lease %s: %w", req.Resource, context.Cause(ctx))
	}

	if r, done, err := t.repeatOrHeld(e, req); done {
		return r, err
	}

	// From here to the grant nobody holds the resource. The old term is over
	// before the new token is written: its holder must not renew in between.
	t.mu.Lock()
	if e.phase == held {
		e.end()
	}
	last := max(e.rec.Token, req.Floor)
	if last >= math.MaxInt64 { // a ledger and a fence keep it as a signed integer
		t.mu.Unlock()
		return Record{}, fmt.Errorf("acquire lease %s: token %d is the last one", req.Resource, last)
	}
	next := Record{
		Resource: req.Resource, Token: last + 1, Holder: req.Holder, Address: req.Address,
		RequestID: req.RequestID, TTL: req.TTL, Expires: time.Now().Add(req.TTL).Round(0),
	}
	e.rec.Token = next.Token
	t.mu.Unlock()

	if err := t.ledger.Save(ctx, next); err != nil {
		return Record{}, fmt.Errorf("acquire lease %s: save: %w", req.Resource, err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	e.rec, e.phase = next, held
	e.extend(time.Now()) // later than the holder's count, which began before it asked
	return e.rec, nil
}

// repeatOrHeld returns what needs no new term. The caller has
// the entry's turn, so no other grant comes between.
func (t *Table) repeatOrHeld(e *entry, req AcquireRequest) (_ Record, done bool, _ error) {
	t.mu.Lock()
	now := time.Now()
	if !e.live(now) {
		t.mu.Unlock()
		return Record{}, false, nil
	}
	if e.rec.Holder == req.Holder && e.rec.RequestID == req.RequestID {
		defer t.mu.Unlock()
		e.extend(now)
		return e.rec, true, nil
	}
	rec, left := e.rec, e.deadline.Sub(now)
	t.mu.Unlock()

	// Asking after a holder opens a file, so mu is not held. It may release in
	// the meantime; then the answer is one moment old, which is no harm.
	if rec.Holder != req.Holder && t.dead(rec.Holder) {
		return Record{}, false, nil
	}
	return Record{}, true, &HeldError{Resource: rec.Resource, Holder: rec.Holder, Address: rec.Address, RetryAfter: left}
}

// Get returns the last record of a resource, and whether it is live. Without
// any record it returns the zero Record.
func (t *Table) Get(resource string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[resource]
	if e == nil {
		return Record{}, false
	}
	return e.rec, e.live(time.Now())
}

// List returns the live records, sorted by resource.
func (t *Table) List() []Record {
	t.mu.Lock()
	now := time.Now()
	var records []Record
	for _, e := range t.entries {
		if e.live(now) {
			records = append(records, e.rec)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Resource, b.Resource) })
	return records
}
