package standalone

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/handlerlock"
	"github.com/theclaw/agents/internal/notifier"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

const (
	// notifierRecheck is how long the answer whether there is a notifier holds.
	notifierRecheck = 5 * time.Second
	// perRound is how many agents one round checks for locks; the next continues.
	perRound = 500
)

// foreign serves programs that the registry does not know: those that have subscribed to
// a thread and are started by the external dispatcher.
//
//	our commit --committed--> subscriptions not ours? --> a task for the notifier
//	sweep --> locks of inbox and outbound that a dead handler left --> removed
//
// A push of the external tool asks the notifier for a dispatch; ours must do the
// same, or a foreign consumer would not be notified. Our own consumers need none of
// this: they are made due by the commit itself. So nothing here can hold them up, a
// subscription with a broken filter included: no foreign filter is ever evaluated.
//
// It promises one complete task for each thread that waits for a dispatch, and that no lock
// of a living handler is touched. It starts no program, and promises no dispatch: that is
// up to the notifier.
type foreign struct {
	r     *Registry
	every time.Duration
	find  func() (home string, ok bool)
	wake  chan struct{}

	mu      sync.Mutex
	home    string // of the notifier; "": there is none
	checked time.Time
	written map[store.Ref]string // threads we wrote to since -> who spoke last
	queued  map[store.Ref]string // the same, where a task waited or was running

	after string // the agent at which the last round for locks ended
}

// newForeign returns a foreign; every is the interval of the sweep, and find returns the
// notifier's directory, nil where there is no notifier.
func newForeign(r *Registry, every time.Duration, find func() (home string, ok bool)) *foreign {
	return &foreign{
		r: r, every: every, find: find, wake: make(chan struct{}, 1),
		written: map[store.Ref]string{}, queued: map[store.Ref]string{},
	}
}

// committed notes that a thread has new events. It is called by the goroutine that
// writes, so it does no more.
func (o *foreign) committed(c store.Commit) {
	if len(c.Events) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.find == nil || o.notifier() == "" {
		return
	}
	o.written[c.Ref] = c.Events[len(c.Events)-1].Source
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// notifier returns the notifier's directory. mu is held.
func (o *foreign) notifier() string {
	if now := time.Now(); now.Sub(o.checked) > notifierRecheck {
		o.checked, o.home = now, ""
		if home, ok := o.find(); ok {
			o.home = home
		}
	}
	return o.home
}

// run schedules and sweeps until ctx ends.
func (o *foreign) run(ctx context.Context) {
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	o.clear(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			o.schedule(ctx, o.take(&o.written))
		case <-tick.C:
			// A dispatch that was running may have read before our commit.
			o.schedule(ctx, o.take(&o.queued))
			o.clear(ctx)
		}
	}
}

func (o *foreign) take(from *map[store.Ref]string) map[store.Ref]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := *from
	*from = map[store.Ref]string{}
	return all
}

// schedule asks the notifier to dispatch the threads to which others have subscribed.
func (o *foreign) schedule(ctx context.Context, threads map[store.Ref]string) {
	o.mu.Lock()
	home := o.home
	o.mu.Unlock()
	for r, author := range threads {
		subs, err := o.r.Engine.Subscriptions(ctx, r)
		if err != nil || !subscribed(r, subs) {
			continue // a thread that cannot be read is reported elsewhere
		}
		path, err := o.r.Path(r)
		if err != nil {
			continue
		}
		switch err := notifier.Add(home, notifier.Task{Author: author, ID: notifier.TaskID(path), Command: notifier.Command(path), CreatedAt: time.Now()}); {
		case errors.Is(err, notifier.ErrQueued):
			o.mu.Lock()
			o.queued[r] = author
			o.mu.Unlock()
		case err != nil:
			o.r.log.Warn("the notifier is not informed of new events", "agent_id", r.Agent, "thread_id", r.Thread, "error", err)
		}
	}
}

// subscribed reports whether a thread has a subscription that is not ours.
func subscribed(r store.Ref, subs []store.Subscription) bool {
	own := thread.Outbound
	if r.IsInbox() {
		own = thread.Inbox
	}
	for _, s := range subs {
		if s.Consumer != own {
			return true
		}
	}
	return false
}

// clear removes locks that stop the dispatch of our own consumers because their
// handler was killed.
func (o *foreign) clear(ctx context.Context) {
	ids, done := o.r.Agents.IDs(), 0
	for _, id := range ids {
		if id <= o.after {
			continue
		}
		if ctx.Err() != nil || done == perRound {
			return
		}
		done++
		o.after = id
		o.clearAgent(id)
	}
	o.after = ""
}

func (o *foreign) clearAgent(id string) {
	if path, err := o.r.Path(store.Inbox(id)); err == nil && handlerlock.Clear(path, thread.Inbox) {
		o.r.log.Info("removed the lock of a dead handler", "agent_id", id, "thread_id", thread.Inbox)
	}
	dir, err := o.r.home.Agent(id)
	if err != nil {
		return
	}
	for _, level := range []string{"*", "*/*", "*/*/*"} {
		locks, err := filepath.Glob(filepath.Join(globbed(dir.Path), "threads", level, "run", thread.Outbound+".lock"))
		if err != nil {
			continue // of the pattern only
		}
		for _, lock := range locks {
			if path := filepath.Dir(filepath.Dir(lock)); handlerlock.Clear(path, thread.Outbound) {
				o.r.log.Info("removed the lock of a dead handler", "agent_id", id, "thread_id", path[len(dir.Path)+1:])
			}
		}
	}
}

// globbed is a path as a pattern that matches it alone.
func globbed(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
