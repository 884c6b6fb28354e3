package slack

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Verify runs the tests, and checks that nothing of them is left running.
func Verify(m *testing.M) { goleak.VerifyTestMain(closed{m}) }

type closed struct{ m *testing.M }

// Run closes the connections that senders share, which live longer than one.
func (c closed) Run() int {
	defer sending.CloseIdleConnections()
	return c.m.Run()
}

// SetPings changes how often the platform is asked whether it is there, during a test.
func SetPings(t *testing.T, every, limit time.Duration) {
	t.Helper()
	before := pings
	pings = pace{every, limit}
	t.Cleanup(func() { pings = before })
}
