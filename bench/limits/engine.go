package limits

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/thread"
)

// Engine answers the messages/s of conversations that each put n messages through
// the storage engine: pushed, read, claimed, answered and acknowledged, in the
// transactions of a real one.
func Engine(ctx context.Context, dir string, conversations, n int) (rate float64, err error) {
	e := sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(dir, "bare", r.Agent, r.Thread), nil },
		Live: func(string, uint64) error { return nil },
	})
	defer func() { err = errors.Join(err, e.Close()) }()
	agent := fmt.Sprintf("bare%d", conversations)
	if _, err := e.Ensure(ctx, store.Inbox(agent), ""); err != nil {
		return 0, err
	}
	refs := make([]store.Ref, conversations)
	for c := range refs {
		refs[c] = store.Ref{Agent: agent, Thread: fmt.Sprintf("threads/peers/c%d", c)}
		if _, err := e.Ensure(ctx, refs[c], ""); err != nil {
			return 0, err
		}
	}
	errs := make([]error, conversations)
	began := time.Now()
	var g sync.WaitGroup
	for c, r := range refs {
		g.Go(func() {
			for range n {
				if errs[c] = message(ctx, e, r); errs[c] != nil {
					return
				}
			}
		})
	}
	g.Wait()
	took := time.Since(began)
	return float64(conversations*n) / took.Seconds(), errors.Join(errs...)
}

func message(ctx context.Context, e *sqlite.Engine, r store.Ref) error {
	f := store.Fence{Resource: "agent/" + r.Agent, Token: 1}
	pushed, err := e.Append(ctx, store.Inbox(r.Agent), []store.NewEvent{{Source: r.Thread, Type: thread.TypeMessage, Content: `{"text":"hello"}`}}, store.AppendOptions{})
	if err != nil {
		return err
	}
	id := pushed.IDs[0]
	ev, key, err := e.InboxEvent(ctx, r.Agent, id)
	if err != nil {
		return err
	}
	if _, err := e.Begin(ctx, r, f, store.Begin{Event: ev, Key: key, Tail: 41}); err != nil {
		return err
	}
	fin, err := e.Finish(ctx, r, f, store.Finish{Key: key, Fate: store.FateReplied, Reply: `{"text":"hello"}`})
	if err != nil {
		return err
	}
	_, err = e.Settle(ctx, r.Agent, f, store.Settlement{InboxID: id, Key: key, Thread: r.Thread, Fate: fin.Fate})
	return err
}
