package discord

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/history"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// pageSize is how many messages an answer has.
	pageSize = 100
	// maxPlaceTries is how often a channel is asked for while the platform fails.
	maxPlaceTries = 3
	// maxChannels bounds the channels that are known without a request.
	maxChannels = 4096
)

// reader makes updates of messages. It is used by one goroutine at a time.
type reader struct {
	*client
	token  string
	who    user
	places map[string]place // channels that are known
}

func newReader(c *client, token string, who user) *reader {
	return &reader{client: c, token: token, who: who, places: map[string]place{}}
}

// List implements [history.Platform].
func (r *reader) List(ctx context.Context, p history.Position, cursor string, limit int) (page []history.Message, next string, err error) {
	params := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		params.Set("before", cursor)
	}
	var list []message
	if _, err := r.call(ctx, r.token, request{what: "messages", verb: http.MethodGet, path: "/channels/" + p.Conversation + "/messages?" + params.Encode()}, &list); err != nil {
		return nil, "", err
	}
	where, err := r.place(ctx, p.Conversation)
	if err != nil {
		return nil, "", err
	}
	if len(list) == limit {
		next = list[len(list)-1].ID
	}
	for _, m := range list {
		if history.Compare(m.ID, p.ID) <= 0 {
			return page, "", nil
		}
		m.GuildID = where.Guild // a list names no guild
		page = append(page, history.Message{ID: m.ID, Update: func(context.Context) (u channel.Update, ok bool) {
			if m.says(false, r.who) {
				u, ok = r.read(&m, false, where), true
				u.Kind = p.Kind // also when the platform does not show the channel any more
			}
			return u, ok
		}})
	}
	return page, next, nil
}

// Refused implements [history.Platform].
func (r *reader) Refused(err error) (lasting bool, retryAfter time.Duration) {
	answer, ok := errors.AsType[*refusal](err)
	if !ok {
		return false, 0
	}
	return answer.lasting(), answer.retryAfter
}

// lasting reports whether a channel is deleted, or hidden from the account.
func (e *refusal) lasting() bool {
	return slices.Contains([]int{http.StatusForbidden, http.StatusNotFound}, e.status)
}

// epoch is the time from which the platform counts, in milliseconds of Unix.
const epoch = 1_420_070_400_000

// written returns when the message with an id was written; zero: it is no id.
func written(id string) time.Time {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(n>>22) + epoch)
}

// place returns what is known of a channel. One that the platform does not show is of an unknown type:
// its messages are taken all the same.
func (r *reader) place(ctx context.Context, id string) (place, error) {
	if p, ok := r.places[id]; ok {
		return p, nil
	}
	var p place
	for try := 1; ; try++ {
		_, err := r.call(ctx, r.token, request{what: "channels", verb: http.MethodGet, path: "/channels/" + id}, &p)
		answer, refused := errors.AsType[*refusal](err)
		switch {
		case err == nil:
		case refused && answer.lasting():
			p = place{Type: typeUnknown} // deleted, or hidden, after the message was written
		case passing(err) && try < maxPlaceTries && pause.For(ctx, again.Wait(try)) == nil:
			continue
		default:
			return place{}, err
		}
		break
	}
	if len(r.places) >= maxChannels {
		clear(r.places)
	}
	r.places[id] = p
	return p, nil
}
