// Package breaker decides whether a destination may be sent to now, with one circuit
// breaker per destination, so that an outage spends no attempt of any message, is probed
// by one message at a time, and delays no other destination.
//
//	          Unavailable                1 s, then 2 s, from the third in a row on
//	closed ------------------> paused ---- 30 s; or the receiver's Retry-After ----+
//	  ^                          ^                                                v
//	  |                          +---- Unavailable, no verdict ----------- half-open
//	  +--------- sent, Failed, Rejected: the destination answers ---- (one message)
//
// A breaker counts as open from the third Unavailable in a row on, or at once when the
// receiver names the time itself. A single reset or 503 comes with each restart of a
// receiver, and 30 s would be a long wait for it; the two short pauses cost one send each,
// however many conversations wait.
//
// While a breaker is closed at most eight messages at a time are sent to the destination:
// a receiver that hangs for each of hundreds of conversations occupies no more of the
// workers that all agents share. The lanes that wait for it are woken when a send ends.
//
// It does not send or start goroutines, and remembers a destination only while a send to
// it is under way or its last one failed, and of those not more than 4,096.
package breaker

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// Interval is the time from an Unavailable to the next probe by default.
	Interval = 30 * time.Second
	// openAfter is how many Unavailable in a row open a breaker. Before that the pause is
	// firstPause, then twice as long.
	openAfter  = 3
	firstPause = time.Second
	// atOnce is how many sends to one destination may be under way: an eighth of the
	// default of workers, and more than a receiver needs that answers in 100 ms to take
	// 80 messages a second.
	atOnce = 8
	// maxRetryAfter bounds the receiver's wish: no receiver may stop us for a day.
	maxRetryAfter = time.Hour
	// probeWait is how soon to ask again while a probe or all permits are out.
	probeWait = time.Second
	// probeLimit is when a probe without verdict is given up, so that a caller
	// that died before its Record cannot close a destination permanently. It is
	// longer than the longest send.
	probeLimit = 5 * time.Minute
	// maxEntries bounds the memory. A forgotten breaker is a closed one: it costs a few
	// sends that fail.
	maxEntries = 4096
	// forgetAfter is when a breaker that may be probed is forgotten, because
	// there is nothing to send there any more.
	forgetAfter = time.Hour
)

// coarse is set by the linker in the control of a proof, to "1": then one breaker stands
// for a channel's name and the host, and opens at the first Unavailable.
var coarse string

// Key names one destination: what can be down while everything else is up.
type Key struct {
	// Agent whose settings define the channel; empty for a built-in channel, which
	// means the same for all agents.
	Agent       string
	Channel     string // the channel's name
	Destination string // what the channel reaches; see channel.Destination
}

// KeyOf returns the key under which a send of m over c is judged.
func KeyOf(c channel.Channel, m channel.Message) Key {
	k := Key{Channel: c.Name(), Destination: channel.Destination(c, m)}
	if coarse != "" {
		k.Destination, _, _ = strings.Cut(k.Destination, " ")
		return k
	}
	if !channel.IsBuiltin(k.Channel) {
		k.Agent = m.AgentID
	}
	return k
}

// String is the key as people read it.
func (k Key) String() string {
	name := k.Channel
	if k.Agent != "" {
		name = k.Agent + "/" + name
	}
	return strings.TrimSpace(name + " " + k.Destination)
}

// Set holds the breakers of one process. The zero value is ready; it is safe
// for concurrent use.
type Set struct {
	// Probe is the time from an Unavailable to the next probe; 0: Interval.
	Probe time.Duration
	// OnChange, if set, is called with the channel of a breaker that opened, closed or
	// is being probed. It is called without a lock held and must not block.
	OnChange func(channel string)

	mu      sync.Mutex
	entries map[Key]*entry
	down    map[string]int // breakers that are not closed, by agent
}

// entry is a destination that is sent to now, or whose last send failed.
type entry struct {
	failures int       // Unavailable in a row; 0: the breaker is closed
	open     bool      // it counts as open
	until    time.Time // no probe before
	probe    time.Time // when the probe that is out was allowed; zero: none is out
	failed   time.Time // the last Unavailable
	underway int
	waiting  []waiter
}

// waiter is who found all permits out.
type waiter struct {
	who  any
	wake func()
}

// ProbeInterval is the time between probes.
func (s *Set) ProbeInterval() time.Duration { return cmp.Or(s.Probe, Interval) }

// Acquire returns the permission for one send, or how long to wait before asking again;
// the message spends no attempt meanwhile. When only other sends to the same destination
// are in the way, wake is called, at the latest, as soon as one of them has ended; who
// tells callers apart. Every permit must be recorded or released.
func (s *Set) Acquire(k Key, who any, wake func()) (p Permit, wait time.Duration) {
	s.mu.Lock()
	e := s.entries[k]
	if e == nil {
		if s.entries == nil {
			s.entries, s.down = make(map[Key]*entry), make(map[string]int)
		}
		e = new(entry)
		s.entries[k] = e
	}
	now := time.Now()
	probing := e.failures > 0
	switch {
	case probing:
		wait = e.wait(now)
	case e.underway >= atOnce && coarse == "":
		if !slices.ContainsFunc(e.waiting, func(w waiter) bool { return w.who == who }) {
			e.waiting = append(e.waiting, waiter{who, wake})
		}
		wait = probeWait
	}
	if wait > 0 {
		s.mu.Unlock()
		return Permit{}, wait
	}
	e.underway++
	if probing {
		e.probe = now
	}
	open := e.open
	s.mu.Unlock()
	if open {
		s.changed(k)
	}
	return Permit{set: s, key: k, live: true, probe: probing}, 0
}

// record judges how a permitted send ended. Any end but Unavailable and our own
// interruption shows that the destination answers. An error decided before the channel
// was tried says nothing about it, and what a send saw that began before the breaker
// left its closed state is older than what is known.
func (s *Set) record(p *Permit, err error) {
	s.mu.Lock()
	e := s.entries[p.key]
	if e == nil { // forgotten meanwhile
		s.mu.Unlock()
		return
	}
	wasOpen := e.open
	e.underway--
	fail := channel.AsError(err)
	switch {
	case fail != nil && fail.Class == channel.Unavailable:
		s.failed(p, e, fail)
	case !p.probe:
	case fail != nil && (fail.Class == channel.Interrupted || fail.BeforeSend):
		e.probe, e.until = time.Time{}, time.Now().Add(probeWait) // the next one may find out
	case e.failures > 0:
		e.failures, e.open, e.probe = 0, false, time.Time{}
		s.count(p.key, -1)
	}
	wakes := e.free()
	switch {
	case e.underway == 0 && e.failures == 0 && len(e.waiting) == 0:
		delete(s.entries, p.key)
	case len(s.entries) > maxEntries:
		s.forget()
	}
	changed := e.open != wasOpen || p.probe && wasOpen
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
	if changed {
		s.changed(p.key)
	}
}

// failed judges an Unavailable. Of a send that was under way when the breaker left its
// closed state it is no further failure: it may lengthen the wait, if the receiver asks
// for it, but never shortens it.
func (s *Set) failed(p *Permit, e *entry, fail *channel.Error) {
	now := time.Now()
	wish := min(fail.RetryAfter, maxRetryAfter)
	if wish > 0 {
		wish = max(wish, probeWait)
	}
	if e.failures > 0 && !p.probe {
		if until := now.Add(wish); wish > 0 && until.After(e.until) {
			e.until, e.open = until, true
		}
		return
	}
	if e.failures == 0 {
		s.count(p.key, 1)
	}
	e.failures++
	e.failed, e.probe = now, time.Time{}
	wait := s.ProbeInterval()
	if e.open = e.open || wish > 0 || e.failures >= openAfter || coarse != ""; !e.open {
		wait = min(firstPause<<(e.failures-1), wait)
	}
	if wish > 0 {
		wait = wish
	}
	e.until = now.Add(wait)
}

// free returns whom to wake: as many as may send now, first come first served. While the
// breaker is not closed it is none: they ask again on their own and learn how long it
// takes.
func (e *entry) free() (wakes []func()) {
	if e.failures > 0 {
		e.waiting = nil
		return nil
	}
	n := min(max(atOnce-e.underway, 0), len(e.waiting))
	for _, w := range e.waiting[:n] {
		wakes = append(wakes, w.wake)
	}
	e.waiting = e.waiting[n:]
	return wakes
}

func (s *Set) count(k Key, by int) {
	if s.down[k.Agent] += by; s.down[k.Agent] == 0 {
		delete(s.down, k.Agent)
	}
}

// forget drops what is not used any more, and at least one entry that no send is under
// way to: the one that failed longest ago.
func (s *Set) forget() {
	var oldest *Key
	now := time.Now()
	for k, e := range s.entries {
		switch {
		case e.underway > 0:
		case e.stale(now):
			s.drop(k, e)
		case oldest == nil || e.failed.Before(s.entries[*oldest].failed):
			oldest = &k
		}
	}
	if len(s.entries) > maxEntries && oldest != nil {
		s.drop(*oldest, s.entries[*oldest])
	}
}

func (s *Set) drop(k Key, e *entry) {
	if e.failures > 0 {
		s.count(k, -1)
	}
	delete(s.entries, k)
}

// stale reports whether a breaker was not used for so long that it will not be.
func (e *entry) stale(now time.Time) bool {
	return e.underway == 0 && now.Sub(e.failed) > forgetAfter && now.Sub(e.until) > forgetAfter
}

// Wait returns how long sends to k are held back, without asking for one: 0 when the
// breaker is closed or may be probed.
func (s *Set) Wait(k Key) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[k]
	if !known || e.failures == 0 {
		return 0
	}
	return e.wait(time.Now())
}

// wait is the time until the next probe of a breaker that is not closed.
func (e *entry) wait(now time.Time) time.Duration {
	if wait := e.until.Sub(now); wait > 0 {
		return wait
	}
	if e.probing(now) {
		return probeWait
	}
	return 0
}

func (e *entry) probing(now time.Time) bool {
	return !e.probe.IsZero() && now.Sub(e.probe) < probeLimit
}

// AllClosed reports whether every breaker is closed that a send of an agent may meet.
func (s *Set) AllClosed(agentID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down[agentID] == 0 && s.down[""] == 0
}

// Status is one breaker that is open or half-open.
type Status struct {
	Key     Key
	Wait    time.Duration // until it may be probed; 0: at the next send
	Probing bool          // half-open: a probe is out
}

// Down returns the breakers that are open or half-open, by key; for status and metrics.
func (s *Set) Down() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Status
	now := time.Now()
	for k, e := range s.entries {
		switch {
		case e.stale(now):
			s.drop(k, e)
		case e.open:
			out = append(out, Status{Key: k, Wait: e.wait(now), Probing: e.probing(now)})
		}
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Key.Channel, b.Key.Channel), strings.Compare(a.Key.Agent, b.Key.Agent), strings.Compare(a.Key.Destination, b.Key.Destination))
	})
	return out
}

// State is the worst state of a channel over its destinations: closed, half_open or
// open.
func (s *Set) State(channel string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, now := "closed", time.Now()
	for k, e := range s.entries {
		switch {
		case k.Channel != channel || !e.open:
		case !e.probing(now):
			return "open"
		default:
			state = "half_open"
		}
	}
	return state
}

func (s *Set) changed(k Key) {
	if s.OnChange != nil {
		s.OnChange(k.Channel)
	}
}
