package obs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Looks bound how often and how long one asks for what nobody tells.
const (
	lookAgain    = time.Second
	lookPatience = 5 * time.Second
)

// Lags is what agents with work have not done yet, by agent; the others are left out.
type Lags struct {
	Inbox    map[string]int64 // messages behind the ack
	Acked    map[string]int64 // the ack of those that have such
	Outbound map[string]int64 // conversations with something to send
}

// lags are the gauges of it. A registry is asked when somebody scrapes: what nobody
// works on changes at no event that one could hear. While there is no answer, they stay
// as they were.
type lags struct {
	inbox, acked, outbound *prometheus.GaugeVec

	mu     sync.Mutex
	look   func(ctx context.Context) (Lags, error)
	looked time.Time
}

// Describe implements prometheus.Collector.
func (l *lags) Describe(ch chan<- *prometheus.Desc) {
	l.inbox.Describe(ch)
	l.acked.Describe(ch)
	l.outbound.Describe(ch)
}

// Collect implements prometheus.Collector.
func (l *lags) Collect(ch chan<- prometheus.Metric) {
	l.refresh()
	l.inbox.Collect(ch)
	l.acked.Collect(ch)
	l.outbound.Collect(ch)
}

func (l *lags) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look == nil || time.Since(l.looked) < lookAgain {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
	defer cancel()
	now, err := l.look(ctx)
	l.looked = time.Now()
	if err != nil {
		return
	}
	for gauge, values := range map[*prometheus.GaugeVec]map[string]int64{l.inbox: now.Inbox, l.acked: now.Acked, l.outbound: now.Outbound} {
		gauge.Reset()
		for id, n := range values {
			setOrDrop(gauge, id, n)
		}
	}
}

// LookForLag makes each scrape ask for the lags, at most once a second; nil: they are
// what was set last.
func (m *RegistryMetrics) LookForLag(look func(ctx context.Context) (Lags, error)) {
	m.lag.mu.Lock()
	defer m.lag.mu.Unlock()
	m.lag.look, m.lag.looked = look, time.Time{}
}
