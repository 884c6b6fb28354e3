package lease

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// modelTerm is what one resource should look like.
type modelTerm struct {
	memory, disk    uint64 // the highest token the table, and the ledger, know
	holder, request string
	held            bool // no end was seen yet; the deadline may have passed
	deadline        time.Time
	diskHolder      string // of the record on disk, and whether it is unreleased
	diskOpen        bool
	ttl             time.Duration
	diskTTL         time.Duration
	highestGranted  uint64
}

func (m *modelTerm) live(now time.Time) bool { return m.held && now.Before(m.deadline) }

// I4, I6: the Table against a model written the other way round, through
// deaths, expiries, failed and torn saves, and restarts on the same ledger.
func TestTableAgainstModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Hidden in a struct, since rapid would ask a *testing.T for its deadline,
		// which a bubble forbids.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			ledger := newLedger()
			dead := make(map[string]bool)
			isDead := func(h string) bool { return dead[h] }
			load := func() *Table {
				table, err := NewTable(context.Background(), ledger, isDead)
				if err != nil {
					t.Fatal(err)
				}
				return table
			}
			table := load()
			model := make(map[string]*modelTerm)
			for _, res := range []string{"agent/a", "deliver/a"} {
				model[res] = &modelTerm{}
			}
			anyResource := rapid.SampledFrom([]string{"agent/a", "deliver/a"})
			anyHolder := rapid.SampledFrom([]string{"h1", "h2", "h3"})

			t.Repeat(map[string]func(*rapid.T){
				"acquire": func(t *rapid.T) {
					req := AcquireRequest{
						Resource:  anyResource.Draw(t, "resource"),
						Holder:    anyHolder.Draw(t, "holder"),
						RequestID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "request"),
						TTL:       rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second}).Draw(t, "ttl"),
						Floor:     rapid.SampledFrom([]uint64{0, 0, 5, 40}).Draw(t, "floor"),
					}
					failure := rapid.SampledFrom([]string{"", "", "", "fails", "torn"}).Draw(t, "disk")
					ledger.hook, ledger.torn = nil, failure == "torn"
					if failure != "" {
						ledger.hook = func(Record) error { return errDisk }
					}
					m, now := model[req.Resource], time.Now()
					r, err := table.Acquire(context.Background(), req)
					ledger.hook = nil

					mine := m.holder == req.Holder && m.request == req.RequestID
					other := m.holder != req.Holder && dead[m.holder]
					if m.live(now) && (mine || !other) {
						var heldErr *HeldError
						switch {
						case mine && (err != nil || r.Token != m.memory):
							t.Fatalf("repeat: %v %v, want token %d", r, err, m.memory)
						case mine:
							m.deadline = now.Add(m.ttl)
						case !errors.As(err, &heldErr) || heldErr.Holder != m.holder || heldErr.RetryAfter != m.deadline.Sub(now):
							t.Fatalf("%v, want held by %s", err, m.holder)
						}
						return
					}
					m.memory = max(m.memory, req.Floor) + 1
					m.held = false
					if failure != "fails" {
						m.disk, m.diskHolder, m.diskOpen, m.diskTTL = m.memory, req.Holder, true, req.TTL
					}
					if failure != "" {
						if !errors.Is(err, errDisk) {
							t.Fatalf("%v, want the disk's error", err)
						}
						return
					}
					if err != nil || r.Token != m.memory {
						t.Fatalf("%v %v, want token %d", r, err, m.memory)
					}
					if r.Token <= m.highestGranted {
						t.Fatalf("token %d was granted after %d", r.Token, m.highestGranted)
					}
					m.highestGranted = r.Token
					m.held, m.holder, m.request = true, req.Holder, req.RequestID
					m.ttl, m.deadline = req.TTL, now.Add(req.TTL)
				},
				"renew": func(t *rapid.T) {
					res, holder := anyResource.Draw(t, "resource"), anyHolder.Draw(t, "holder")
					m, now := model[res], time.Now()
					token := m.memory - min(m.memory, rapid.Uint64Range(0, 1).Draw(t, "back"))
					_, err := table.Renew(res, holder, token)
					if want := m.live(now) && token == m.memory && holder == m.holder; (err == nil) != want {
						t.Fatalf("renew %d: %v, want ok %v", token, err, want)
					} else if want {
						m.deadline = now.Add(m.ttl)
					} else if !errors.Is(err, ErrLost) {
						t.Fatal(err)
					}
				},
				"release": func(t *rapid.T) {
					res := anyResource.Draw(t, "resource")
					m := model[res]
					token := m.memory - min(m.memory, rapid.Uint64Range(0, 1).Draw(t, "back"))
					if _, known := table.Get(res); !known && m.memory == 0 {
						return
					}
					before := ledger.count()
					err := table.Release(context.Background(), res, token)
					if (err == nil) != (token == m.memory) {
						t.Fatalf("release %d of %d: %v", token, m.memory, err)
					}
					if err == nil {
						m.held = false
						if ledger.count() > before {
							m.disk, m.diskOpen = m.memory, false
						}
					}
				},
				"reap": func(t *rapid.T) {
					now := time.Now()
					reaped := make(map[string]bool)
					for _, r := range table.Reap(context.Background()) {
						reaped[r.Resource] = true
					}
					for res, m := range model {
						if m.held && (!m.live(now) || dead[m.holder]) {
							if !reaped[res] {
								t.Fatalf("%s has ended and was not reaped", res)
							}
							m.held = false
						} else if m.held && reaped[res] {
							t.Fatalf("%s is live and was reaped", res)
						}
						if reaped[res] {
							m.disk, m.diskOpen = m.memory, false
						}
					}
					if again := table.Reap(context.Background()); len(again) != 0 {
						t.Fatalf("reaped again: %v", again)
					}
				},
				"die": func(t *rapid.T) { dead[anyHolder.Draw(t, "holder")] = true },
				"come back under the same name": func(t *rapid.T) { // no real holder does
					h := anyHolder.Draw(t, "holder")
					for _, m := range model {
						if m.holder == h || m.diskHolder == h {
							return
						}
					}
					delete(dead, h)
				},
				"wait": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{1, 500 * time.Millisecond, time.Second, 4 * time.Second}).Draw(t, "time"))
				},
				"restart": func(t *rapid.T) {
					table = load()
					rows := maps.Clone(ledger.rows)
					for res, m := range model {
						m.memory = m.disk
						m.held = m.diskOpen && !dead[m.diskHolder]
						m.holder, m.request, m.ttl = m.diskHolder, rows[res].RequestID, m.diskTTL
						m.deadline = time.Now().Add(m.ttl)
					}
				},
				"": func(t *rapid.T) {
					now := time.Now()
					for res, m := range model {
						r, live := table.Get(res)
						if live != m.live(now) || (live && (r.Token != m.memory || r.Holder != m.holder)) {
							t.Fatalf("%s: %v live %v, want token %d of %s live %v", res, r, live, m.memory, m.holder, m.live(now))
						}
						for token := range m.memory + 2 {
							if want := m.live(now) && token == m.memory; (table.Check(res, token) == nil) != want {
								t.Fatalf("%s: check of %d, want ok %v", res, token, want)
							}
						}
					}
				},
			})
		})
	})
}
