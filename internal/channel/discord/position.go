package discord

import (
	"encoding/json"
	"sync"

	"github.com/theclaw/agents/internal/channel"
)

// cursorName is the name under which a position is kept.
const cursorName = "session"

// kept is a position as it is stored: the sequence up to which everything is stored.
type kept struct {
	Session  string `json:"session"`
	URL      string `json:"url"`
	Sequence int64  `json:"seq"`
	Server   string `json:"server"` // names the API: a session of another one means nothing
}

// position is where a session of the gateway is.
//
//	kept       last
//	  | taken | stored | taken |
type position struct {
	mu      sync.Mutex
	session string // empty: none that can be resumed
	url     string
	last    int64          // the last sequence that was taken
	open    map[int64]bool // those that were taken and are not stored
	number  int            // counts sessions: a sequence means nothing in another one
	written kept
	closed  bool
	server  string
	keep    func(value string)
}

// newPosition begins where a kept value says.
func newPosition(value, api string, keep func(string)) *position {
	p := &position{open: map[int64]bool{}, server: channel.Fingerprint(api), keep: keep}
	var k kept
	if json.Unmarshal([]byte(value), &k) == nil && k.Server == p.server && k.Session != "" {
		p.session, p.url, p.last, p.written = k.Session, k.URL, k.Sequence, k
	}
	return p
}

// resume returns what a connection resumes; without a session it begins one.
func (p *position) resume() (session, url string, last int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session, p.url, p.last
}

// begin notes a session that began. What is still on its way of the one before it is no part of it.
func (p *position) begin(session, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.url, p.last = session, url, 0
	p.number++
	clear(p.open)
}

// forget notes that the session cannot be resumed.
func (p *position) forget() { p.begin("", "") }

// fresh reports whether a sequence was not taken yet.
func (p *position) fresh(sequence int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sequence > p.last
}

// take notes a sequence, and returns what notes that it is stored.
func (p *position) take(sequence int64) (stored func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = sequence
	p.open[sequence] = true
	number := p.number
	return func() { p.stored(sequence, number) }
}

func (p *position) stored(sequence int64, number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || number != p.number || !p.open[sequence] {
		return
	}
	delete(p.open, sequence)
	next := kept{Session: p.session, URL: p.url, Sequence: p.last, Server: p.server}
	for s := range p.open {
		next.Sequence = min(next.Sequence, s-1)
	}
	// Before the first event of a session is stored, what was written before it may be missing.
	if next == p.written || p.session == "" || next.Sequence == 0 {
		return
	}
	doc, err := json.Marshal(next)
	if err != nil {
		return // texts and a number always can be
	}
	p.written = next
	p.keep(string(doc))
}

// close ends the position: what is stored later belongs to no connection any more.
func (p *position) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}
