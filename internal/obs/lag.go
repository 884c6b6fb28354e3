package obs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	lagInterval = time.Second     // between two reads of the lags
	lagTimeout  = 5 * time.Second // of one read
)

// Lags is the unfinished work of agents, by agent; idle agents are left out.
type Lags struct {
	Inbox    map[string]int64 // messages behind the ack
	Acked    map[string]int64 // the ack of those that have such
	Outbound map[string]int64 // conversations with something to send
}

// lags are its gauges. A scrape reads them from the registry, because no event reports the
// age of waiting work. When a read fails they keep their values.
type lags struct {
	inbox, acked, outbound *prometheus.GaugeVec

	mu     sync.Mutex
	source func(ctx context.Context) (Lags, error)
	readAt time.Time
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
	if l.source == nil || time.Since(l.readAt) < lagInterval {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	now, err := l.source(ctx)
	l.readAt = time.Now()
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

// SetLagSource makes each scrape read the lags from source, at most once a second; with nil
// they stay as they were.
func (m *RegistryMetrics) SetLagSource(source func(ctx context.Context) (Lags, error)) {
	m.lag.mu.Lock()
	defer m.lag.mu.Unlock()
	m.lag.source, m.lag.readAt = source, time.Time{}
}
