package discord

import (
	"context"
	"errors"
	"sync"

	"github.com/theclaw/agents/internal/pause"
)

// maxWaiting is how many events wait for their channels. While there are more nothing is read.
const maxWaiting = 256

// waiting has the events of channels that the platform cannot show now. Without its channel it is
// not known who may write such a message.
type waiting struct {
	mu     sync.Mutex
	queues map[string][]queued // by channel, in their order; none: the events of the channel do not wait
	space  chan struct{}       // has maxWaiting places
}

type queued struct {
	event  event
	stored func()
}

func newWaiting() *waiting {
	return &waiting{queues: map[string][]queued{}, space: make(chan struct{}, maxWaiting)}
}

// has reports whether events of a channel wait.
func (w *waiting) has(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.queues[id]
	return ok
}

// add lets an event wait, for which space was taken. first: it is the only one of its channel.
func (w *waiting) add(q queued) (first bool) {
	id := q.event.ChannelID
	w.mu.Lock()
	defer w.mu.Unlock()
	list, ok := w.queues[id]
	w.queues[id] = append(list, q)
	return !ok
}

// next returns the event that waited longest; false: there is none, and later ones need not wait.
func (w *waiting) next(id string) (q queued, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.queues[id]
	if len(list) == 0 {
		delete(w.queues, id)
		return q, false
	}
	w.queues[id] = list[1:]
	return list[0], true
}

// find asks for a channel until the platform shows it, or says that it does not, and takes what waits
// for it.
func (s *stream) find(ctx context.Context, id string) {
	other := newReader(s.client, s.token, s.who) // s.reader is in use
	for n := 0; ; n++ {
		if pause.For(ctx, again.Wait(n)) != nil {
			return // what is not stored comes again
		}
		where, err := other.place(ctx, id)
		if err != nil {
			continue
		}
		for {
			q, ok := s.waiting.next(id)
			if !ok {
				return
			}
			u, done := s.say(q.event, where)
			if s.intake.Take(ctx, u, func() { q.stored(); done() }) != nil {
				return
			}
			<-s.waiting.space
		}
	}
}

// passing reports whether an answer says that the platform fails at the moment.
func passing(err error) bool {
	answer, ok := errors.AsType[*refusal](err)
	return ok && answer.status/100 == 5
}
