package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*Pool
	root   string
	mu     sync.Mutex
	faults []error
}

func setup(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{root: t.TempDir()}
	o.Path = func(r store.Ref) (string, error) {
		if r.Agent == "unknown" {
			return "", errors.New("no such agent")
		}
		return filepath.Join(f.root, r.Agent), nil
	}
	o.OnFault = func(_ store.Ref, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = append(f.faults, err)
	}
	f.Pool = New(o)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) make(t *testing.T, agent string) store.Ref {
	t.Helper()
	if _, err := db.Create(filepath.Join(f.root, agent)); err != nil {
		t.Fatal(err)
	}
	return store.Inbox(agent)
}

func (f *fixture) insert(r store.Ref) error {
	return f.Do(context.Background(), r, true, func(tx *db.Tx) error {
		_, err := tx.Insert(store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "x"})
		return err
	})
}

func (f *fixture) count(t *testing.T, r store.Ref) (n int) {
	t.Helper()
	err := f.View(t.Context(), r, func(tx *db.Tx) error {
		_, err := tx.Row("SELECT COUNT(*) FROM events", nil, &n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestIdleAndBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, Options{MaxOpen: 4, Idle: time.Minute})
		for i := range 10 {
			if err := f.insert(f.make(t, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // each rests longer than the next
		}
		open := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := f.Open(); n != want {
				t.Errorf("%d open, want %d", n, want)
			}
		}
		open(4) // the bound holds at once, not at the janitor's next tick
		time.Sleep(16 * time.Second)
		open(4)
		if !f.IsOpen(store.Inbox("9")) || f.IsOpen(store.Inbox("0")) {
			t.Error("the longest idle ones stayed")
		}
		time.Sleep(30 * time.Second)
		if err := f.insert(store.Inbox("9")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		open(1)
		time.Sleep(time.Minute)
		open(0)
		if s := f.Stats(); s.Durable != 11 {
			t.Errorf("stats %+v, want those of closed databases, too", s)
		}
		if n := f.count(t, store.Inbox("9")); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}

// A database in use is neither closed nor counted out.
func TestUsedStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, Options{MaxOpen: 1, Idle: time.Second})
		r := f.make(t, "a")
		err := f.Do(t.Context(), r, true, func(*db.Tx) error {
			time.Sleep(time.Hour)
			if f.Open() != 1 {
				t.Error("closed under its user")
			}
			f.Forget(func(store.Ref) bool { return true })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if n := f.count(t, r); n != 0 {
			t.Errorf("%d events", n)
		}
	})
}

// Whatever the janitor does, there are never many more open than allowed.
func TestBoundWithoutJanitor(t *testing.T) {
	f := &fixture{root: t.TempDir()}
	f.Pool = empty(Options{MaxOpen: 4, Idle: time.Hour, Path: func(r store.Ref) (string, error) { return filepath.Join(f.root, r.Agent), nil }})
	for i := range 20 {
		if err := f.insert(f.make(t, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if n := len(f.handles) + len(f.left); n > 6 {
			t.Fatalf("%d databases are open", n)
		}
	}
	if f.IsOpen(store.Inbox("0")) || !f.IsOpen(store.Inbox("19")) {
		t.Error("not the longest idle ones were closed")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// What the open databases take stays below the bound, whatever their number is: with the
// janitor once it has worked, without it a quarter above the bound and one database.
func TestBoundOnBytes(t *testing.T) {
	const bound, most = 1 << 20, 1<<20 + 1<<18 + 1<<19
	fill := func(t *testing.T, f *fixture) {
		for i := range 40 {
			if err := f.insert(f.make(t, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if n := f.Bytes(); n > most {
				t.Fatalf("%d databases take %d bytes, at most %d", f.Open(), n, most)
			}
			time.Sleep(time.Millisecond) // each rests longer than the next
		}
		if f.Bytes() == 0 || !f.IsOpen(store.Inbox("39")) || f.IsOpen(store.Inbox("0")) {
			t.Errorf("%d bytes; not the longest idle ones were closed", f.Bytes())
		}
	}
	t.Run("janitor", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := setup(t, Options{MaxOpen: 1000, MaxBytes: bound, Idle: time.Minute})
			fill(t, f)
			synctest.Wait()
			time.Sleep(16 * time.Second) // a tick
			synctest.Wait()
			if n := f.Bytes(); n > bound || f.Open() < 2 {
				t.Errorf("%d databases take %d bytes, the bound is %d", f.Open(), n, bound)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if n := f.Bytes(); n != 0 {
				t.Errorf("%d bytes are counted with no database open", n)
			}
		})
	})
	t.Run("callers alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{root: t.TempDir()}
			f.Pool = empty(Options{MaxOpen: 1000, MaxBytes: bound, Idle: time.Hour, Path: func(r store.Ref) (string, error) { return filepath.Join(f.root, r.Agent), nil }})
			fill(t, f)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestManyAtOnce(t *testing.T) {
	f := setup(t, Options{MaxOpen: 2, Idle: time.Millisecond}) // closes all the time
	var refs []store.Ref
	for i := range 8 {
		refs = append(refs, f.make(t, fmt.Sprint(i)))
	}
	stop := make(chan struct{})
	var forget, work sync.WaitGroup
	forget.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f.Forget(func(r store.Ref) bool { return r.Agent < "4" })
			}
		}
	})
	for i := range 32 {
		work.Go(func() {
			for j := range 20 {
				if err := f.insert(refs[(i+j)%len(refs)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	forget.Wait()
	total := 0
	for _, r := range refs {
		n := f.count(t, r)
		total += n
		if err := f.View(t.Context(), r, func(tx *db.Tx) error {
			chained, err := tx.VerifyChain()
			if chained != int64(n) {
				t.Errorf("%s: %d events, %d chained", r, n, chained)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		f.Forget(func(x store.Ref) bool { return x == r }) // the mirror is complete when it closed
		if lines := f.lines(t, r); lines != n {
			t.Errorf("%s: %d events, %d lines", r, n, lines)
		}
	}
	if total != 640 {
		t.Errorf("%d events", total)
	}
	if len(f.faults) > 0 {
		t.Errorf("faults %v", f.faults)
	}
}

func (f *fixture) lines(t *testing.T, r store.Ref) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.root, r.Agent, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

func TestFaults(t *testing.T) {
	f := setup(t, Options{MaxOpen: 9, Idle: time.Minute})
	if err := f.insert(store.Inbox("nobody")); !errors.Is(err, store.ErrNotFound) || len(f.faults) != 0 {
		t.Errorf("absent: %v, told %v", err, f.faults)
	}
	if err := f.insert(store.Inbox("unknown")); err == nil {
		t.Error("no path, no error")
	}
	f.faults = nil
	good, bad, gone := f.make(t, "good"), f.make(t, "bad"), f.make(t, "gone")
	if err := os.WriteFile(filepath.Join(f.root, "bad", "events.db"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.insert(bad); !errors.Is(err, store.ErrCorrupt) || len(f.faults) != 1 || !errors.Is(f.faults[0], store.ErrCorrupt) {
		t.Errorf("corrupt: %v, told %v", err, f.faults)
	}
	if err := errors.Join(f.insert(good), f.insert(gone)); err != nil { // the others go on
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(f.root, "gone")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.insert(gone); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("gone: %v", err)
		}
	}
	f.make(t, "gone")
	if err := f.insert(gone); err != nil || f.count(t, gone) != 1 {
		t.Errorf("made again: %v", err)
	}
	if len(f.faults) != 1 {
		t.Errorf("told %v", f.faults)
	}
}

// Who stops waiting for an opening leaves nothing behind.
func TestCancelWhileOpening(t *testing.T) {
	f := setup(t, Options{MaxOpen: 9, Idle: time.Minute})
	r := f.make(t, "a")
	path, at, goOn := f.o.Path, make(chan struct{}), make(chan struct{})
	f.o.Path = func(r store.Ref) (string, error) { close(at); <-goOn; return path(r) }
	first := make(chan error)
	go func() { first <- f.insert(r) }()
	<-at
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Do(ctx, r, true, func(*db.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
	f.Forget(func(store.Ref) bool { return true })
	if f.Open() != 0 {
		t.Error("still open")
	}
}

// The commit counters never fall, not even while a database that was taken out is
// still used: they are counters of a metric, which ends the process that lowers one.
func TestStatsNeverFall(t *testing.T) {
	f := setup(t, Options{MaxOpen: 4, Idle: time.Minute})
	a := f.make(t, "a")
	for range 3 {
		if err := f.insert(a); err != nil {
			t.Fatal(err)
		}
	}
	before := f.Stats()
	err := f.View(t.Context(), a, func(*db.Tx) error {
		for range 2 { // the second time one that is opening is taken out as well
			f.Forget(func(store.Ref) bool { return true })
			if now := f.Stats(); now.Durable < before.Durable {
				t.Errorf("%d durable commits, %d before", now.Durable, before.Durable)
			}
			ctx, cancel := context.WithCancel(t.Context())
			begun := make(chan struct{})
			go func() {
				defer close(begun)
				_ = f.View(ctx, a, func(*db.Tx) error { return nil })
			}()
			for !f.IsOpen(a) {
				runtime.Gosched()
			}
			cancel()
			t.Cleanup(func() { <-begun })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if now := f.Stats(); now.Durable < before.Durable {
		t.Errorf("%d durable commits, %d before", now.Durable, before.Durable)
	}
}
