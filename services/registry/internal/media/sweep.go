package media

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// page is how many threads and media are listed at once.
const page = 500

// Threads lists the conversations of an agent.
type Threads interface {
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Visit is called before a thread is read once, leave after it.
	Visit(r store.Ref) (leave func())
}

// Sweeper removes media that nothing refers to any more.
type Sweeper struct {
	Store   store.Media
	Threads Threads
}

// Sweep is what a sweep removes.
type Sweep struct {
	// Before: media that were written since then stay.
	Before time.Time
	// New: of media that were written within store.MediaGrace only these go.
	New map[string]bool
	// Since: events before it refer to nothing. The zero value is for all events.
	Since time.Time
	Apply bool // remove; else count
}

// Sweep removes the media of an agent that no stored result of a step, and no event since a time, refers to. Kept counts
// those that are old and are referred to. The threads of an agent without old media are not read.
func (s Sweeper) Sweep(ctx context.Context, agent string, o Sweep) (out store.Share, err error) {
	left, fresh := map[string]int64{}, time.Now().Add(-store.MediaGrace)
	for after := ""; ; {
		list, err := s.Store.ListMedia(ctx, agent, o.Before, after, page)
		if err != nil {
			return out, err
		}
		for _, m := range list {
			if after = m.SHA256; m.At.Before(fresh) || o.New[m.SHA256] {
				left[m.SHA256] = m.Size
			}
		}
		if len(list) < page {
			break
		}
	}
	old := int64(len(left))
	if old > 0 {
		if err := s.mark(ctx, agent, o.Since, func(sum string) { delete(left, sum) }); err != nil {
			return out, err
		}
	}
	var gone []string
	for sum, size := range left {
		gone = append(gone, sum)
		out.Bytes += size
	}
	out.Gone, out.Kept = int64(len(gone)), old-int64(len(gone))
	if !o.Apply {
		return out, nil
	}
	removed, err := s.Store.RemoveMedia(ctx, agent, gone, o.Before)
	removed.Kept = out.Kept
	return removed, err
}

// mark calls found for each hash that a thread of the agent refers to.
func (s Sweeper) mark(ctx context.Context, agent string, since time.Time, found func(sha256 string)) error {
	refs := func(id string) error {
		r := store.Ref{Agent: agent, Thread: id}
		defer s.Threads.Visit(r)()
		if err := s.Store.MediaRefs(ctx, r, since, found); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return nil // it was removed since it was listed
	}
	if err := refs(thread.Inbox); err != nil {
		return err
	}
	for after := ""; ; {
		ids, err := s.Threads.Threads(ctx, agent, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			after = id
			if err := refs(id); err != nil {
				return err
			}
		}
		if len(ids) < page {
			return nil
		}
	}
}
