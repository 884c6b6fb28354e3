// Package access opens one thread directory: through the registry that serves it, or
// directly as a database.
//
//	path ---> inside a home? --no--------------------------> direct
//	               | yes
//	               v
//	          home's lock free? --yes, held while open-------> direct
//	               | no
//	               v
//	          registry answers? --yes----------------------> remote
//	               | no: it is starting or stopping
//	               +--> try both again, until the timeout
//
// A home is also recognized by its layout, because programs that push into one
// (gateways, other agents) often do not have THECLAW_HOME. Its lock is held shared: a
// registry that starts waits for this process, and processes of this kind do not wait
// for each other.
//
// A direct connection is a guest (see sqlite.Guest): where the lock does not protect,
// as for an inbox that a setting put outside its home, it does not disturb a registry
// at work, nor the registry it.
//
// The package prints nothing and knows no command.
package access

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Query selects events after an id.
type Query struct {
	After  int64
	Limit  int
	Filter *filter.Filter
}

// Conn is an open thread.
type Conn interface {
	// Push commits events in one transaction, on disk when it returns.
	Push(ctx context.Context, events []store.NewEvent) (ids []int64, err error)
	// Peek reads a page; more reports that it is not the last of the query.
	Peek(ctx context.Context, q Query) (events []thread.Event, more bool, err error)
	// Ack sets the progress of a consumer, back too.
	Ack(ctx context.Context, consumer string, id int64) error
	Info(ctx context.Context) (store.Info, error)
	Subscribe(ctx context.Context, s store.Subscription) error
	Unsubscribe(ctx context.Context, consumer string) error
	Close() error
}

// page is the most events read at once.
const page = 1000

// Place is a thread directory and what it belongs to.
type Place struct {
	Dir string // as it was given, made absolute
	// Home is the home it lies in; empty: none. Agent and Thread name it there.
	Home, Agent, Thread string
}

// At finds out what a path is; it need not exist.
func At(e *command.Env, path string) (Place, error) {
	dir, err := absolute(path, e.Getenv("HOME"))
	if err != nil {
		return Place{}, err
	}
	p := Place{Dir: dir}
	if home, err := e.Home(); err == nil {
		if agent, thread, err := layout.ResolveThread(home.Path(), dir); err == nil {
			p.Home, p.Agent, p.Thread = home.Path(), agent, thread
			return p, nil
		}
	}
	p.Home, p.Agent, p.Thread = homeOf(dir)
	return p, nil
}

// homeOf looks for a home above dir: a directory with agents/ and run/ such that
// the rest of the path is a thread's.
func homeOf(dir string) (home, agent, thread string) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = filepath.Clean(dir)
	}
	above := filepath.Dir(real)
	for range layout.MaxThreadLevels + 1 { // the levels of a thread, and the agent's id
		if filepath.Base(above) == "agents" {
			home = filepath.Dir(above)
			agent, thread, err = layout.ResolveThread(home, real)
			if i, missing := os.Stat(layout.At(home).RunDir()); err == nil && missing == nil && i.IsDir() {
				return home, agent, thread
			}
		}
		above = filepath.Dir(above)
	}
	return "", "", ""
}

// absolute is path as the external tool understands it: ~/ is the user's home,
// the rest is made absolute and plain, links stay links, and a / at the end stays.
func absolute(path, user string) (string, error) {
	if len(path) >= 2 && path[:2] == "~/" && user != "" {
		path = user + path[1:]
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if path[len(path)-1] == '/' && abs != "/" {
		abs += "/"
	}
	return abs, nil
}

// Open opens the thread at p.
func Open(ctx context.Context, e *command.Env, p Place) (Conn, error) {
	return reach(ctx, e, p, func(unlock func() error) (Conn, error) { return openDirect(ctx, p, unlock) })
}

// Create makes the thread at p; false when there is one.
func Create(ctx context.Context, e *command.Env, p Place) (created bool, err error) {
	d, err := reach(ctx, e, p, func(unlock func() error) (Conn, error) { return makeDirect(p, unlock) })
	if err != nil {
		return false, err
	}
	return d.(maker).make(ctx)
}

// maker makes the thread that its door leads to, and is done with it.
type maker interface {
	make(ctx context.Context) (created bool, err error)
}

// again is how soon a home that neither is free nor answers is looked at again.
const again = 20 * time.Millisecond

// reach decides between the two ways.
func reach(ctx context.Context, e *command.Env, p Place, direct func(unlock func() error) (Conn, error)) (Conn, error) {
	if p.Home == "" {
		return direct(nil)
	}
	e.Flags.Home = p.Home
	ctx, cancel := context.WithTimeout(ctx, e.Flags.Timeout)
	defer cancel()
	for {
		unlock, free, err := lock(p.Home)
		if err != nil {
			return nil, Fault(p, err)
		}
		if free {
			return direct(unlock)
		}
		if answers(ctx, p.Home) {
			return &remote{e, p}, nil
		}
		if err := pause.For(ctx, again); err != nil {
			return nil, occupied(p.Home, err)
		}
	}
}
