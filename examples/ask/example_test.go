package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main() // the runner of the world starts this program again to probe its sandbox
	os.Exit(m.Run())
}

// Asked twice under one key, the message is stored once, worked on once and
// answered with the same event. Another name is another conversation.
func Example() {
	s := &stage{ctx: context.Background()}
	defer s.close()
	w := world.Start(s, world.Options{})
	w.Create(s, "alice", "")
	ask := func(name, key, text string) {
		Main([]string{"-home", w.Home, "-agent", "alice", "-as", name, "-key", key, text}, os.Getenv, os.Stdout, os.Stderr)
	}
	ask("report", "monday", "say: no news")
	ask("report", "monday", "say: no news")
	ask("report", "tuesday", "recall")
	ask("other", "monday-2", "recall")
	r, err := w.Turns.ListTurns(s.ctx, &registryv1.ListTurnsRequest{AgentId: "alice"})
	fmt.Println("messages:", len(r.GetTurns()), err)
	// Output:
	// threads/peers/ask-report, event 2 from self: {"text":"no news","reply_context":{"channel_type":"console","channel_id":"ask","peer_id":"report","session_id":"report"}}
	// threads/peers/ask-report, event 2 from self: {"text":"no news","reply_context":{"channel_type":"console","channel_id":"ask","peer_id":"report","session_id":"report"}}
	// threads/peers/ask-report, event 4 from self: {"text":"offline: your earlier messages (1):\n1. say: no news","reply_context":{"channel_type":"console","channel_id":"ask","peer_id":"report","session_id":"report"}}
	// threads/peers/ask-other, event 2 from self: {"text":"offline: I see no earlier message of yours.","reply_context":{"channel_type":"console","channel_id":"ask","peer_id":"other","session_id":"other"}}
	// messages: 3 <nil>
}

// A message that fails for good is an error with its cause, not silence.
func Example_failure() {
	s := &stage{ctx: context.Background()}
	defer s.close()
	w := world.Start(s, world.Options{})
	w.Create(s, "alice", "")
	status := Main([]string{"-home", w.Home, "-agent", "alice", "-key", "k", "fail: auth"}, os.Getenv, os.Stdout, os.Stdout)
	fmt.Println("exit status", status)
	// Output:
	// Error: message 1 has no reply: FATE_DEAD key refused (401): offline: a failure was asked for
	// exit status 1
}

// stage is what a world needs of a test, for an Example, which is given none.
type stage struct {
	testing.TB
	ctx   context.Context
	after []func()
}

func (s *stage) Helper()                  {}
func (s *stage) Context() context.Context { return s.ctx }
func (s *stage) Cleanup(f func())         { s.after = append(s.after, f) }
func (s *stage) Fatal(a ...any)           { log.Panic(a...) }

func (s *stage) Fatalf(format string, a ...any) { log.Panicf(format, a...) }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "ask-") // short: a socket's path has at most 107 bytes
	if err != nil {
		log.Panic(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *stage) close() {
	for i := len(s.after) - 1; i >= 0; i-- {
		s.after[i]()
	}
}
