package notify_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
)

type ear struct {
	mu    sync.Mutex
	heard map[store.Notice]int
	news  chan struct{}
	ready chan struct{}
}

func (e *ear) on(items []store.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range items {
		e.heard[i]++
	}
	select {
	case e.news <- struct{}{}:
	default:
	}
}

func (e *ear) await(t *testing.T, n int) {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		e.mu.Lock()
		have := len(e.heard)
		e.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-e.news:
		case <-end:
			t.Fatalf("heard %d of %d", have, n)
		}
	}
}

func bus(t *testing.T, url string) (*notify.Bus, *ear) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	e := &ear{heard: map[store.Notice]int{}, news: make(chan struct{}, 1), ready: make(chan struct{}, 100)}
	b := notify.New(notify.Options{Pool: pool, Logger: slog.New(slog.DiscardHandler), On: e.on, Lost: func() { e.ready <- struct{}{} }})
	var g sync.WaitGroup
	g.Go(func() { b.Run(t.Context()) })
	t.Cleanup(func() { g.Wait(); pool.Close() })
	<-e.ready
	return b, e
}

// What one registry tells the others hear once and it does not hear itself, however
// much it is; after the server died and came back they hear again, and are told that
// they may have missed something.
func TestBus(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	url := c.Database(t)
	a, own := bus(t, url)
	_, other := bus(t, url)
	const n = 3000
	for i := range n {
		item := store.Notice{Kind: store.NoticeThread, Name: fmt.Sprintf("agent-%d/threads/peers/main-%d", i, i)}
		a.Publish(item, item)
	}
	other.await(t, n)
	c.Kill(t)
	c.Up(t)
	<-own.ready
	<-other.ready
	a.Publish(store.Notice{Kind: store.NoticeApprovals})
	other.await(t, n+1)
	own.mu.Lock()
	defer own.mu.Unlock()
	if len(own.heard) != 0 {
		t.Errorf("heard itself: %d", len(own.heard))
	}
}

// What was being told when the connection broke is told over the next one.
func TestBrokenLine(t *testing.T) {
	c := pgtest.Shared(t)
	url := c.Database(t)
	a, own := bus(t, url)
	_, other := bus(t, url)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const breaks, each = 3, 500
	for i := range breaks {
		for j := range each {
			a.Publish(store.Notice{Kind: store.NoticeWork, Name: fmt.Sprintf("it's-%d-%d", i, j)})
		}
		for cut := false; !cut; { // the one that told
			if err := pool.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE query LIKE 'NOTIFY%'").Scan(&cut); err != nil {
				t.Fatal(err)
			}
		}
		<-own.ready
		other.await(t, (i+1)*each)
	}
	if !func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return other.heard[store.Notice{Kind: store.NoticeWork, Name: "it's-0-0"}] > 0
	}() {
		t.Error("a name was changed on its way")
	}
}
