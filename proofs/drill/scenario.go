package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Agent and Thread are where a Scenario runs.
const (
	Agent  = "a"
	Thread = "threads/x"
)

const peer = "external:telegram:main:dm:bob:bob"

// Scenario is the life of messages as the engine sees it, from the push to the
// delivery: the calls a registry makes for its clients, in their order, made
// directly so that a proof can stop anywhere. The engine may be replaced between
// two calls; what has happened outside of it is kept here.
type Scenario struct {
	// Between is called before every step with its label; an error ends what is
	// under way, as a crash, a lost call or a lost lease would. nil: never.
	Between func(ctx context.Context, label string) error
	// Accepted is called for each write that was taken under a token.
	Accepted func(f store.Fence)
	BootID   string
	// Mode of the queue: empty is followup, else collect or steer.
	Mode string

	mu    sync.Mutex
	acked map[int]int64     // inbox ids of acknowledged pushes, by number
	ran   map[string]int    // runs of the effect tool, by key
	sink  map[string]int    // arrivals, by delivery key
	plain map[string]int    // of these without the flag
	doubt int               // tools that were in doubt
	texts map[string]string // what arrived, by delivery key
}

// Figures count what a Scenario found.
type Figures struct{ Messages, Replies, Merged, Dead, InDoubt, Repeats, Lost, Dup, Violations int }

func (f *Figures) String() string {
	return fmt.Sprintf("messages=%d replies=%d merged=%d in_doubt=%d repeats=%d dead=%d lost=%d dup=%d violations=%d",
		f.Messages, f.Replies, f.Merged, f.InDoubt, f.Repeats, f.Dead, f.Lost, f.Dup, f.Violations)
}

// Add sums.
func (f *Figures) Add(o Figures) {
	f.Messages += o.Messages
	f.Replies += o.Replies
	f.Merged += o.Merged
	f.Dead += o.Dead
	f.InDoubt += o.InDoubt
	f.Repeats += o.Repeats
	f.Lost += o.Lost
	f.Dup += o.Dup
	f.Violations += o.Violations
}

// NewScenario makes an empty one.
func NewScenario() *Scenario {
	return &Scenario{acked: map[int]int64{}, ran: map[string]int{}, sink: map[string]int{}, plain: map[string]int{}, texts: map[string]string{}}
}

func (s *Scenario) step(ctx context.Context, label string) error {
	if s.Between == nil {
		return ctx.Err()
	}
	return s.Between(ctx, label)
}

func (s *Scenario) took(f store.Fence, err error) error {
	if err == nil && s.Accepted != nil {
		s.Accepted(f)
	}
	return err
}

// Push makes message n arrive (T0). A push that failed is repeated with the same
// n until it is acknowledged.
func (s *Scenario) Push(ctx context.Context, e store.Engine, n int) error {
	out, err := e.Append(ctx, store.Inbox(Agent), []store.NewEvent{{Source: peer, Type: thread.TypeMessage, Content: fmt.Sprintf(`{"text":"m%d"}`, n)}},
		store.AppendOptions{Key: fmt.Sprint("push", n)})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.acked[n]; ok && before != out.IDs[0] {
		return fmt.Errorf("message %d has ids %d and %d", n, before, out.IDs[0])
	}
	s.acked[n] = out.IDs[0]
	return nil
}

// Work answers everything the inbox has, in order (T1 to T8).
func (s *Scenario) Work(ctx context.Context, e store.Engine, f store.Fence) error {
	if err := s.step(ctx, "open"); err != nil {
		return err
	}
	b, err := e.OpenBatch(ctx, Agent, f, store.OpenBatch{
		Limit: 32, Mode: "per-peer",
		Claimed: func(ctx context.Context, _ thread.Event, key, _ string) (bool, error) {
			begun, err := e.Claimed(ctx, store.Ref{Agent: Agent, Thread: Thread}, key)
			if errors.Is(err, store.ErrNotFound) {
				return false, nil
			}
			return begun, err
		},
		Route: func(thread.Event, string) (string, error) { return Thread, nil },
	})
	if s.took(f, err) != nil {
		return err
	}
	for i, p := range b.Events {
		if err := s.turn(ctx, e, f, p, b.Events[i+1:]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scenario) turn(ctx context.Context, e store.Engine, f store.Fence, p store.Pending, behind []store.Pending) error {
	var waiting []store.Member
	for _, m := range behind[:min(len(behind), 3)] {
		waiting = append(waiting, store.Member{Event: m.Event, Key: m.Key})
	}
	r := store.Ref{Agent: Agent, Thread: p.Thread}
	if err := s.step(ctx, "T1"); err != nil {
		return err
	}
	if _, err := e.Ensure(ctx, r, "bob"); err != nil {
		return err
	}
	begin := store.Begin{Event: p.Event, Key: p.Key, ReplyContext: "{}", Alone: true, Tail: 4, Subscribe: true, Handler: "deliver"}
	if s.Mode == "collect" {
		begin.Members = waiting
	}
	begun, err := e.Begin(ctx, r, f, begin)
	if s.took(f, err) != nil {
		return err
	}
	done := begun.Finished
	switch begun.Outcome {
	case store.BeginFinished, store.BeginExhausted:
	case store.BeginGo:
		if done, err = s.steps(ctx, e, r, f, p, begun.Steps, waiting); err != nil {
			return err
		}
	default:
		return fmt.Errorf("begin of %s: outcome %d", p.Key, begun.Outcome)
	}
	if err := s.step(ctx, "T8"); err != nil {
		return err
	}
	_, err = e.Settle(ctx, Agent, f, store.Settlement{InboxID: p.Event.ID, Key: p.Key, Thread: p.Thread, Fate: done.Fate, OutboxHead: done.OutboxHead, Merged: done.Merged})
	return s.took(f, err)
}

// steps asks the model, runs the effect tool once, and replies (T3 to T7).
func (s *Scenario) steps(ctx context.Context, e store.Engine, r store.Ref, f store.Fence, p store.Pending, journal []store.Step, waiting []store.Member) (store.Finished, error) {
	find := func(key string) string {
		i := slices.IndexFunc(journal, func(st store.Step) bool { return st.Key == key })
		if i < 0 {
			return ""
		}
		return journal[i].State
	}
	record := func(label string, toolcall string, st store.Step) error {
		if err := s.step(ctx, label); err != nil {
			return err
		}
		rec := store.Record{Key: p.Key, Steps: []store.Step{st}}
		if toolcall != "" {
			rec.Records = map[string]string{st.Key: toolcall}
		}
		_, err := e.Record(ctx, r, f, rec)
		return s.took(f, err)
	}
	if find("model:1") == "" {
		if err := record("T3", "", store.Step{Seq: 1, Kind: store.StepModel, Key: "model:1", State: store.StepDone, Result: []byte("{}")}); err != nil {
			return store.Finished{}, err
		}
	}
	tool := store.Step{Seq: 2, Kind: store.StepTool, Key: "tool:1", Class: store.ClassEffect, Name: "bash", CallID: "c", State: store.StepIntent}
	switch find("tool:1") {
	case "":
		if err := record("T4", "", tool); err != nil {
			return store.Finished{}, err
		}
		if err := s.step(ctx, "T5"); err != nil {
			return store.Finished{}, err
		}
		s.mu.Lock()
		s.ran[p.Key+":tool:1"]++
		s.mu.Unlock()
		tool.State = store.StepDone
		if err := record("T6", `{"ok":true}`, tool); err != nil {
			return store.Finished{}, err
		}
	case store.StepIntent:
		tool.State = store.StepInDoubt
		if err := record("T6", `{"ok":false}`, tool); err != nil {
			return store.Finished{}, err
		}
		s.mu.Lock()
		s.doubt++
		s.mu.Unlock()
	}
	if s.Mode == "steer" && find("steer:2") == "" {
		if err := s.step(ctx, "steer"); err != nil {
			return store.Finished{}, err
		}
		if _, err := e.Steer(ctx, r, f, store.Steer{Key: p.Key, Step: "steer:2", Seq: 3, Members: waiting}); s.took(f, err) != nil {
			return store.Finished{}, err
		}
	}
	if err := s.step(ctx, "T7"); err != nil {
		return store.Finished{}, err
	}
	done, err := e.Finish(ctx, r, f, store.Finish{Key: p.Key, Fate: store.FateReplied, Reply: strings.Replace(p.Event.Content, "m", "re ", 1), Deliver: true, BootID: s.BootID})
	return done, s.took(f, err)
}

// Deliver sends everything the thread has (D1 to D3).
func (s *Scenario) Deliver(ctx context.Context, e store.Engine, f store.Fence) error {
	r := store.Ref{Agent: Agent, Thread: Thread}
	for {
		if err := s.step(ctx, "D1"); err != nil {
			return err
		}
		due, err := e.NextDelivery(ctx, r, f, store.NextDelivery{BootID: s.BootID})
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if s.took(f, err) != nil {
			return err
		}
		if due.Outcome != store.DueSend {
			return nil
		}
		if err := s.step(ctx, "D2"); err != nil {
			return err
		}
		s.mu.Lock()
		s.sink[due.Key]++
		s.texts[due.Key] = due.Event.Content
		if !due.MaybeDuplicate {
			s.plain[due.Key]++
		}
		s.mu.Unlock()
		if err := s.step(ctx, "D3"); err != nil {
			return err
		}
		if _, err := e.FinishDelivery(ctx, r, f, store.FinishDelivery{EventID: due.Event.ID, Outcome: store.OutcomeSent, Channel: "sink", MaxAttempts: 100}); s.took(f, err) != nil {
			return err
		}
	}
}
