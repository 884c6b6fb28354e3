//go:build proof

package main

import (
	"context"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
)

// cluster is site for several registries over PostgreSQL: at each label one of the
// processes that pass it dies, and another takes its work over.
func (m *matrix) cluster(db *pgtest.Cluster) func(*testing.T, []blow) {
	return func(t *testing.T, part []blow) {
		c, sink := newCluster(t, db.Database(t)), world.NewSink(t)
		mode := m.mode(part)
		for _, id := range []string{"a1", "a2", "a3"} {
			c.Create(t, id, sink.Config())
			for key, value := range digesting {
				c.Set(t, id, key, value)
			}
			c.Set(t, id, "queue.mode", mode)
		}
		l := c.load(mode)
		l.resets = true
		for _, b := range part {
			if !m.strikeOne(t, c, l, b) {
				break
			}
		}
		a := &audit{TB: t, load: l, sink: sink}
		a.check()
		c.kill()
		if !a.clean() {
			t.Errorf("%s, after %+v:\n%s", mode, part, &a.figures)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.add(a.figures)
	}
}

// strikeOne is strike for a cluster.
func (m *matrix) strikeOne(t *testing.T, c *cluster, l *load, b blow) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.trap(t, b.label, b.hit, "kill")
	l.send(ctx, some(l)...)
	done := l.done()
	kills := 0
	defer func() { m.dealt(b, kills) }()
	var away []*part
	// back is what follows a death: the next trap, and the process again, now or when
	// everything has come to its end without it.
	back := func(q *world.Process) bool {
		p := c.whose(q)
		if !q.Killed() {
			t.Errorf("%+v: %s ended by itself; its log:\n%s", b, p.name, q.Log())
			return false
		}
		if kills++; kills < b.row {
			c.trap(t, b.label, 1, "kill")
		}
		if b.split && len(away) == 0 {
			away = append(away, p)
		} else {
			c.start(t, p)
		}
		return true
	}
	for {
		select {
		case q := <-c.fallen:
			if !back(q) {
				cancel()
				<-done
				return false
			}
		case <-done:
			ok := ctx.Err() == nil
			if c.clear(t, b.label) && len(c.fallen) == 0 && kills < b.row {
				ok = back(<-c.fallen) && ok // it has passed the label and is on its way out
				c.clear(t, b.label)
			}
			for len(c.fallen) > 0 {
				ok = back(<-c.fallen) && ok
				c.clear(t, b.label)
			}
			for _, p := range away {
				c.start(t, p)
			}
			if !ok {
				t.Errorf("%+v: stuck%s", b, c.logs())
			}
			return ok
		}
	}
}
