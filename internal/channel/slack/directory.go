package slack

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"time"
)

const (
	// nameTime is how long a name is used before it is read again, unknownTime how long one that
	// could not be read is left out.
	nameTime, unknownTime = 10 * time.Minute, time.Minute
	// lookUpLimit bounds a look-up. It is short: messages wait for it.
	lookUpLimit = 3 * time.Second
	// maxKnown bounds the memory.
	maxKnown = 4096
	// maxLookUps is how many names of one text are looked up.
	maxLookUps = 5
)

// directory knows the names of people and the kinds of conversations. It is used by one goroutine.
type directory struct {
	client *client
	token  string
	names  map[string]entry
	kinds  map[string]entry
	closed time.Time // until when nothing is looked up: the platform asked for a pause
}

type entry struct {
	value string
	until time.Time // zero: for as long as it is known
}

func newDirectory(c *client, token string) *directory {
	return &directory{client: c, token: token, names: map[string]entry{}, kinds: map[string]entry{}}
}

// name is how a person is called; empty: unknown.
func (d *directory) name(ctx context.Context, id string) string {
	return d.find(ctx, d.names, id, d.fetchName)
}

func (d *directory) fetchName(ctx context.Context, id string) (string, error) {
	var a struct {
		User struct {
			Name    string `json:"name"`
			Real    string `json:"real_name"`
			Profile struct {
				Display string `json:"display_name"`
				Real    string `json:"real_name"`
			} `json:"profile"`
		} `json:"user"`
	}
	err := d.client.read(ctx, d.token, "users.info", url.Values{"user": {id}}, &a)
	p := a.User.Profile
	return cmp.Or(p.Display, p.Real, a.User.Real, a.User.Name), err
}

// kind is the kind of a conversation. stated is what an event says about it; empty: nothing.
func (d *directory) kind(ctx context.Context, id, stated string) string {
	switch stated {
	case "":
	case "im":
		return kindDM
	case "mpim":
		d.kinds[id] = entry{value: kindGroup}
		return kindGroup
	case "app_home":
		return kindDM
	default: // channel, group
		return kindChannel
	}
	if strings.HasPrefix(id, "D") {
		return kindDM
	}
	return cmp.Or(d.find(ctx, d.kinds, id, d.fetchKind), kindChannel)
}

func (d *directory) fetchKind(ctx context.Context, id string) (string, error) {
	var a struct {
		Channel struct {
			IM   bool `json:"is_im"`
			MPIM bool `json:"is_mpim"`
		} `json:"channel"`
	}
	err := d.client.read(ctx, d.token, "conversations.info", url.Values{"channel": {id}}, &a)
	switch {
	case err != nil:
		return "", err
	case a.Channel.IM:
		return kindDM, nil
	case a.Channel.MPIM:
		return kindGroup, nil
	}
	return kindChannel, nil
}

// find returns what is known, or is fetched, about an id.
func (d *directory) find(
	ctx context.Context, known map[string]entry, id string, fetch func(context.Context, string) (string, error),
) string {
	now := time.Now()
	e, ok := known[id]
	if ok && (e.until.IsZero() || now.Before(e.until)) || now.Before(d.closed) || !idRule().MatchString(id) {
		return e.value
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	value, err := fetch(ctx, id)
	until := now.Add(nameTime)
	if err != nil {
		value, until = e.value, now.Add(unknownTime)
		if r, ok := errors.AsType[*refusal](err); ok && r.retryAfter > 0 {
			d.closed = now.Add(r.retryAfter)
		}
	}
	if len(known) >= maxKnown {
		clear(known)
	}
	known[id] = entry{value, until}
	return value
}
