package threadtool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/theclaw/agents/cmd/internal/threadtool/access"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
)

// A handler is started detached: it has its own session and no streams, and nobody
// waits for it. It gets no arguments but its own command line and finds its events
// itself. The lock, run/<consumer>.lock with the pid of the dispatcher in it, keeps a
// consumer from being started twice. The handler removes the lock when it is done; a
// handler that does not is started only once. Only a handler that could not be started
// leaves no lock.
//
// A subscription that cannot be dispatched (an invalid filter, a consumer whose name
// cannot be a file name) is reported and does not stop the others.

// dueSubscriptions returns the subscriptions with unread events that match their filter,
// in the order they were made, and the problems of the others.
func dueSubscriptions(ctx context.Context, d access.Conn) (due []store.Subscription, problems []error, err error) {
	in, err := d.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range in.Subscriptions {
		f, err := subscriptionFilter(s)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		unread, _, err := d.Peek(ctx, access.Query{After: s.Acked, Limit: 1, Filter: f})
		if err != nil {
			return due, problems, err
		}
		if len(unread) > 0 {
			due = append(due, s)
		}
	}
	return due, problems, nil
}

func subscriptionFilter(s store.Subscription) (*filter.Filter, error) {
	if strings.Contains(s.Consumer, "/") {
		return nil, fmt.Errorf("consumer '%s' has a / in its name", s.Consumer)
	}
	if s.Filter == nil {
		return nil, nil
	}
	f, err := filter.Parse(*s.Filter)
	if err != nil {
		return nil, fmt.Errorf("consumer '%s': %s", s.Consumer, fault.From(err).What)
	}
	return f, nil
}

// startHandler takes the lock of a consumer and starts its handler. It returns false
// when the lock is held.
func startHandler(dir string, s store.Subscription) (bool, error) {
	run := filepath.Join(dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return false, fmt.Errorf("lock consumer: %w", err)
	}
	path := filepath.Join(run, s.Consumer+".lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("lock consumer: %w", err)
	}
	_, err = lock.WriteString(strconv.Itoa(os.Getpid()))
	if err = errors.Join(err, lock.Close()); err == nil {
		err = spawn(s.Handler)
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("start handler: %w", err), os.Remove(path))
	}
	return true, nil
}

// spawn starts a handler and does not wait for it.
func spawn(handler string) error {
	c := exec.Command("/bin/sh", "-c", handler)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	return c.Process.Release()
}
