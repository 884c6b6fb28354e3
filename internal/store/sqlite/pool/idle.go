package pool

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// An open database takes a quarter of a megabyte. More than spare idle ones stay open only as
// long as they are used again and again: a start of a thousand agents, or a message to each,
// leaves none behind, and a database that is in use is opened again once a tick at most.
const (
	spare     = 32
	spareIdle = 5 * time.Second
)

func (p *Pool) janitor() {
	tick := time.NewTicker(max(p.o.Idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.full:
		case <-tick.C:
		}
		for _, h := range p.takeIdle() {
			_ = p.end(h) // a failing checkpoint is redone at the next open
		}
	}
}

// takeIdle takes the handles to close out of the table: those idle for long, and
// the longest idle ones past a bound.
func (p *Pool) takeIdle() []*handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out, idle []*handle
	now := time.Now()
	for _, h := range p.handles {
		switch {
		case h.users > 0:
		case now.Sub(h.idleSince) >= p.o.Idle:
			p.leave(h)
			out = append(out, h)
		default:
			idle = append(idle, h)
		}
	}
	over, bytes := len(p.handles)-p.o.MaxOpen, p.bytes
	for _, h := range out {
		bytes -= h.bytes
	}
	slices.SortFunc(idle, func(a, b *handle) int { return a.idleSince.Compare(b.idleSince) })
	for i, h := range idle {
		if i < over || bytes > p.o.MaxBytes || i < len(idle)-spare && now.Sub(h.idleSince) >= spareIdle {
			p.leave(h)
			out = append(out, h)
			bytes -= h.bytes
		}
	}
	return out
}

// help closes the database that was idle longest when so many are open, or take so much, that
// the janitor cannot keep up: who opens one then pays for closing one, so that
// descriptors and memory stay bounded under any load.
func (p *Pool) help() {
	p.mu.Lock()
	var oldest *handle
	if len(p.handles)+len(p.left) > p.o.MaxOpen+p.o.MaxOpen/4 || p.bytes > p.o.MaxBytes+p.o.MaxBytes/4 {
		for _, h := range p.handles {
			if h.users == 0 && (oldest == nil || h.idleSince.Before(oldest.idleSince)) {
				oldest = h
			}
		}
	}
	if oldest != nil {
		p.leave(oldest)
	}
	p.mu.Unlock()
	if oldest != nil {
		_ = p.end(oldest) // a failing checkpoint is redone at the next open
	}
}

// closeDB closes a database, and reports the state of an inbox that was written.
func (p *Pool) closeDB(h *handle) error {
	var state fileState
	known := false
	if w := h.db.Stats(); p.o.OnRest != nil && h.ref.IsInbox() && w.Durable+w.Lazy > 0 { // else the file is as it was
		known = h.db.Alone(context.Background(), func(c conn.Conn) (err error) {
			state, err = markClosed(c, filepath.Join(h.db.Dir(), "events.db"))
			return err
		}) == nil
	}
	err := h.db.Close()
	if known && err == nil && state.holds() {
		p.o.OnRest(h.ref.Agent, state.AtRest)
	}
	return err
}
