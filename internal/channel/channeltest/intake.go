// Package channeltest has what tests of receivers need in place of a gateway.
//
// Its [Intake] stores what it takes at once, or later, or acknowledges before it stores, as a test
// says, and [Run] runs a receiver. It decides nothing about people and keeps nothing on disk.
package channeltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// Intake is the gateway of a test: what it stored outlives its receivers, as a registry does.
type Intake struct {
	mu      sync.Mutex
	changed chan struct{}
	// Identity and Name are those of Connected, Refuse is its answer.
	Identity, Name string
	Refuse         error
	// NotReady is the answer of Ready.
	NotReady error
	// Before runs in Connected; nil: nothing does.
	Before  func()
	Cursors map[string]string
	Taken   []channel.Update
	Stored  map[string]bool // by key
	Skipped int             // calls of Ignored
	// Unsaved is the answer of Save, which then stores nothing.
	Unsaved error
	// Hold says which updates are not stored before Release; nil: none.
	Hold    func(channel.Update) bool
	Waiting []func() // what Hold kept back
	// Early acknowledges before it stores: the control.
	Early bool
}

// NewIntake returns one that stores everything at once.
func NewIntake() *Intake {
	return &Intake{changed: make(chan struct{}), Cursors: map[string]string{}, Stored: map[string]bool{}}
}

// Do changes fields.
func (i *Intake) Do(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
	close(i.changed)
	i.changed = make(chan struct{})
}

// Connected implements [channel.Intake].
func (i *Intake) Connected(identity, name string) error {
	if i.Before != nil {
		i.Before()
	}
	var err error
	i.Do(func() { i.Identity, i.Name, err = identity, name, i.Refuse })
	return err
}

// Ready implements [channel.Intake].
func (i *Intake) Ready() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.NotReady
}

// Cursor implements [channel.Intake].
func (i *Intake) Cursor(_ context.Context, name string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Cursors[name], nil
}

// Keep implements [channel.Intake].
func (i *Intake) Keep(name, value string) { i.Do(func() { i.Cursors[name] = value }) }

// Save implements [channel.Intake].
func (i *Intake) Save(_ context.Context, name, value string) (err error) {
	i.Do(func() {
		if err = i.Unsaved; err == nil {
			i.Cursors[name] = value
		}
	})
	return err
}

// Take implements [channel.Intake].
func (i *Intake) Take(_ context.Context, u channel.Update, stored func()) error {
	now := true
	i.Do(func() {
		i.Taken = append(i.Taken, u)
		if i.Hold == nil || !i.Hold(u) {
			i.Stored[u.Key] = true
			return
		}
		now = i.Early
		i.Waiting = append(i.Waiting, func() {
			i.Do(func() { i.Stored[u.Key] = true })
			stored()
		})
	})
	if now {
		stored()
	}
	return nil
}

// Ignored implements [channel.Intake].
func (i *Intake) Ignored() { i.Do(func() { i.Skipped++ }) }

// Release stores what was kept back.
func (i *Intake) Release() {
	var list []func()
	i.Do(func() { list, i.Waiting, i.Hold = i.Waiting, nil, nil })
	for _, f := range list {
		f()
	}
}

// Await waits until a condition holds, which reads the fields.
func (i *Intake) Await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(time.Minute)
	for {
		i.mu.Lock()
		ok, changed := holds(), i.changed
		i.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// Texts are those of the updates that were taken.
func (i *Intake) Texts() (list []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, u := range i.Taken {
		list = append(list, u.Text)
	}
	return list
}

// Run runs a receiver until stop is called, which returns its error; also at the end of the test.
func Run(t *testing.T, r channel.Receiver, in channel.Intake) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Receive(ctx, in) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}
