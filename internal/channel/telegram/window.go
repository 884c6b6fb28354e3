package telegram

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// staleAfter is how old the newest update may be for its number to count: after a week without
// one the platform numbers at random, and an offset above the new numbers would drop messages.
const staleAfter = 6 * 24 * time.Hour

// window is which updates were taken and which of them are stored.
//
//	offset                         high
//	  | taken | stored | taken | ... |
//
// The offset is the first number that is not known to be stored: the platform forgets what is below.
type window struct {
	mu     sync.Mutex
	offset int64 // 0: unknown
	high   int64 // one above the last that was taken
	newest time.Time
	// open are the updates that were taken and are not stored, done those that are stored and
	// above one that is not.
	open, done map[int64]bool
	numbering  int // counts how often the numbers began again
	closed     bool
	keep       func(value string)
	server     string
	progress   chan struct{} // has a value after the offset moved
}

// newWindow begins where a kept value says. server names the API: the numbers of another one mean
// nothing.
func newWindow(kept, server string, now time.Time, keep func(string)) *window {
	w := &window{open: map[int64]bool{}, done: map[int64]bool{}, keep: keep, server: server, progress: make(chan struct{}, 1)}
	f := strings.Fields(kept)
	if len(f) != 3 || f[2] != server {
		return w
	}
	offset, err1 := strconv.ParseInt(f[0], 10, 64)
	at, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 == nil && err2 == nil && now.Sub(time.Unix(at, 0)) < staleAfter {
		w.offset, w.high, w.newest = offset, offset, time.Unix(at, 0)
	}
	return w
}

// ask returns the offset of the next request.
func (w *window) ask(now time.Time) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) == 0 && now.Sub(w.newest) >= staleAfter {
		return 0
	}
	return w.offset
}

// take returns those of an answer that were not taken before, in their order. Where all are below
// the offset, their numbering began again, and what was taken before says nothing about them.
// The second result is for stored.
func (w *window) take(list []update, now time.Time) (fresh []update, numbering int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(list) == 0 {
		return nil, w.numbering
	}
	slices.SortStableFunc(list, func(a, b update) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	if list[len(list)-1].ID < w.offset {
		w.offset, w.high = 0, 0
		w.numbering++
		clear(w.open)
		clear(w.done)
	}
	for _, u := range list {
		if u.ID < w.offset || w.open[u.ID] || w.done[u.ID] {
			continue
		}
		w.open[u.ID] = true
		fresh = append(fresh, u)
	}
	if len(fresh) > 0 {
		w.newest = now
		w.high = max(w.high, fresh[len(fresh)-1].ID+1)
		if w.offset == 0 {
			w.offset = fresh[0].ID
		}
	}
	return fresh, w.numbering
}

// stored notes that an update is on disk, or refused. It does nothing for one of a numbering that
// ended, and after close.
func (w *window) stored(id int64, numbering int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || numbering != w.numbering || !w.open[id] {
		return
	}
	delete(w.open, id)
	w.done[id] = true
	next := w.high
	for id := range w.open {
		next = min(next, id)
	}
	if next == w.offset {
		return
	}
	w.offset = next
	maps.DeleteFunc(w.done, func(id int64, _ bool) bool { return id < next })
	w.keep(fmt.Sprintf("%d %d %s", next, w.newest.Unix(), w.server))
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// close ends the window: what is stored later belongs to no connection any more.
func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// settled reports whether all that was taken is stored.
func (w *window) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) == 0
}

// Waits before the next request, while something that was taken is not stored: the platform would
// answer at once, with what it answered before.
const (
	afterSome = 100 * time.Millisecond // others may have arrived meanwhile
	afterNone = time.Second
)

// wait waits until all that was taken is stored, or for a short while. some says whether the last
// answer had something new; if not, each move of the offset ends the wait, because the platform
// lists the first updates only.
func (w *window) wait(ctx context.Context, some bool) error {
	limit := afterNone
	if some {
		limit = afterSome
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !w.settled() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-w.progress:
			if !some {
				return nil
			}
		}
	}
	return ctx.Err()
}

// server names an API in a kept value.
func server(api string) string { return channel.Fingerprint(api) }
