package leaseapi

import (
	"sync"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// polls keeps the last answer to each holder's long poll, so that a repeat of a
// call whose answer was lost gets the same leases, and which holders let a lease
// run out.
type polls struct {
	mu     sync.Mutex
	last   map[string]poll // by holder and kind
	lapses map[string]int  // by holder
}

type poll struct {
	requestID string
	answer    *registryv1.AcquireDueLeaseResponse
}

func (p *polls) repeat(key, requestID string) *registryv1.AcquireDueLeaseResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.last[key]; ok && l.requestID == requestID {
		return l.answer
	}
	return nil
}

func (p *polls) keep(key, requestID string, answer *registryv1.AcquireDueLeaseResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) > 4096 { // holders come and go; a forgotten answer costs one ttl
		clear(p.last)
	}
	p.last[key] = poll{requestID, answer}
}

// lapsed notes that a lease of the holder ran out.
func (p *polls) lapsed(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lapses == nil || len(p.lapses) > 4096 {
		p.lapses = map[string]int{}
	}
	p.lapses[holder]++
}

func (p *polls) lapsesOf(holder string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lapses[holder]
}
