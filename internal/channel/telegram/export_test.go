package telegram

import (
	"context"
	"testing"

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

// Admission is the rate of a bot that sent nothing yet.
func Admission() func(ctx context.Context, chat string, group bool) error {
	r := newRates()
	return func(ctx context.Context, chat string, group bool) error { return r.admit(ctx, "", chat, group) }
}

// forgetRates is for tests whose clock is their own.
func forgetRates() { sent = newRates() }

// Groups are groups that became supergroups.
type Groups struct{ g *groups }

func LoadGroups(kept string) Groups { return Groups{loadGroups(kept)} }

func (g Groups) ID(now string) string { return g.g.id(now) }

func (g Groups) Moved(from, to string) (string, bool) { return g.g.moved(from, to) }
