package limits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/thread"
)

// Bare is what the storage engine does without anything around it.
type Bare struct {
	Took time.Duration   // of all
	Rate float64         // messages/s
	Each []time.Duration // of each message, sorted
}

// Engine answers the messages of conversations that each put n messages through the
// embedded engine.
func Engine(ctx context.Context, dir string, conversations, n int) (b Bare, err error) {
	e := sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(dir, "bare", r.Agent, r.Thread), nil },
		Live: func(string, uint64) error { return nil },
	})
	defer func() { err = errors.Join(err, e.Close()) }()
	agent := "bare-" + strings.ToLower(rand.Text()) // each call has an inbox of its own
	refs := make([]store.Ref, conversations)
	for c := range refs {
		refs[c] = store.Ref{Agent: agent, Thread: fmt.Sprintf("threads/peers/c%d", c)}
	}
	return Drive(ctx, e, refs, n)
}

// Drive puts n messages through an engine in each of some conversations, all of them at
// once: pushed, read, claimed, answered and acknowledged, in the transactions of real
// ones. The fence is the first term of each agent's lease.
func Drive(ctx context.Context, e store.Engine, conversations []store.Ref, n int) (b Bare, err error) {
	for _, r := range conversations {
		for _, r := range []store.Ref{store.Inbox(r.Agent), r} {
			if _, err := e.Ensure(ctx, r, ""); err != nil {
				return b, err
			}
		}
	}
	errs, took := make([]error, len(conversations)), make([][]time.Duration, len(conversations))
	began := time.Now()
	var g sync.WaitGroup
	for c, r := range conversations {
		g.Go(func() {
			for i := range n {
				one := time.Now()
				if errs[c] = message(ctx, e, r, began, i); errs[c] != nil {
					return
				}
				took[c] = append(took[c], time.Since(one))
			}
		})
	}
	g.Wait()
	b.Took = time.Since(began)
	b.Rate = float64(len(conversations)*n) / b.Took.Seconds()
	b.Each = slices.Concat(took...)
	slices.Sort(b.Each)
	return b, errors.Join(errs...)
}

// tail is how many messages a claim answers with the settings that an agent is made with.
const tail = 21

func message(ctx context.Context, e store.Engine, r store.Ref, run time.Time, n int) error {
	f := store.Fence{Resource: "agent/" + r.Agent, Token: 1}
	pushed, err := e.Append(ctx, store.Inbox(r.Agent), []store.NewEvent{{Source: "external:bench:bench:dm:" + r.Thread, Type: thread.TypeMessage, Content: `{"text":"hello"}`}},
		store.AppendOptions{Key: fmt.Sprint(r.Thread, run.UnixNano(), n)})
	if err != nil {
		return err
	}
	id := pushed.IDs[0]
	ev, key, err := e.InboxEvent(ctx, r.Agent, id)
	if err != nil {
		return err
	}
	if _, err := e.Begin(ctx, r, f, store.Begin{Event: ev, Key: key, Tail: tail, Layers: []string{"thread", "peer"}, Files: []string{"IDENTITY.md", "memory/MEMORY.md"}}); err != nil {
		return err
	}
	answer := store.Step{Seq: 1, Kind: store.StepModel, Key: "model:1", State: store.StepDone, Name: "offline", Result: []byte(`{"text":"hello"}`)}
	fin, err := e.Finish(ctx, r, f, store.Finish{Key: key, InboxID: id, Fate: store.FateReplied, Reply: `{"text":"hello"}`, Steps: []store.Step{answer}})
	if err != nil || fin.Settled {
		return err
	}
	_, err = e.Settle(ctx, r.Agent, f, store.Settlement{InboxID: id, Key: key, Thread: r.Thread, Fate: fin.Fate})
	return err
}

// Push answers the median of n pushes by one writer, each on disk when it returns.
func Push(ctx context.Context, dir string, n int) (p50 time.Duration, err error) {
	e := sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(dir, "push", r.Agent, r.Thread), nil },
		Live: func(string, uint64) error { return nil },
	})
	defer func() { err = errors.Join(err, e.Close()) }()
	if _, err := e.Ensure(ctx, store.Inbox("push"), ""); err != nil {
		return 0, err
	}
	return median(n, func(int) error {
		_, err := e.Append(ctx, store.Inbox("push"), []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: `{"text":"hello"}`}}, store.AppendOptions{})
		return err
	})
}
