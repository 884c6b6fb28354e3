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

// lags are the two lag gauges. A registry that is alone sets them as things happen; one
// of several asks the database when somebody scrapes. While that does not answer, they
// stay as they were.
type lags struct {
	inbox, outbound *prometheus.GaugeVec

	mu     sync.Mutex
	look   func(ctx context.Context) (inbox, outbound map[string]int64, err error)
	looked time.Time
}

// Describe implements prometheus.Collector.
func (l *lags) Describe(ch chan<- *prometheus.Desc) {
	l.inbox.Describe(ch)
	l.outbound.Describe(ch)
}

// Collect implements prometheus.Collector.
func (l *lags) Collect(ch chan<- prometheus.Metric) {
	l.refresh()
	l.inbox.Collect(ch)
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
	in, out, err := l.look(ctx)
	l.looked = time.Now()
	if err != nil {
		return
	}
	for gauge, values := range map[*prometheus.GaugeVec]map[string]int64{l.inbox: in, l.outbound: out} {
		gauge.Reset()
		for id, n := range values {
			setOrDrop(gauge, id, n)
		}
	}
}

// LookForLag makes each scrape ask for the lags, at most once a second; nil: they are
// what was set last.
func (m *RegistryMetrics) LookForLag(look func(ctx context.Context) (inbox, outbound map[string]int64, err error)) {
	m.lag.mu.Lock()
	defer m.lag.mu.Unlock()
	m.lag.look, m.lag.looked = look, time.Time{}
}
