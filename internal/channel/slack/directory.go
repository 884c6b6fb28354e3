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
	// nameTime is how long a name is used before it is read again, unknownTime how long what could not
	// be read is left out.
	nameTime, unknownTime = 10 * time.Minute, time.Minute
	// lookUpLimit bounds a look-up. It is short: messages wait for it.
	lookUpLimit = 3 * time.Second
	// maxKnown bounds the memory of names and of kinds, maxRoots that of texts.
	maxKnown, maxRoots = 4096, 256
	// maxLookUps is how many names of one text are looked up.
	maxLookUps = 5
	// maxQuote is the most characters of a message that began a thread.
	maxQuote = 500
)

// directory knows the names of people, the kinds of conversations and the messages that began threads. It
// is used by one goroutine.
type directory struct {
	client *client
	token  string
	names  table[string]
	kinds  table[string]
	roots  table[root] // by rootID
}

// root is the message that began a thread.
type root struct {
	text string
	mine bool // the bot wrote it
}

func rootID(conversation, thread string) string { return conversation + "/" + thread }

// table is what is known by ids, and what could not be read.
type table[V any] struct {
	entries map[string]entry[V]
	most    int           // entries
	keep    time.Duration // how long one that was read is used; 0: for as long as it is known
	closed  time.Time     // until when nothing is looked up; see paused
}

type entry[V any] struct {
	value V
	until time.Time // zero: for as long as it is known
}

func newDirectory(c *client, token string) *directory {
	return &directory{client: c, token: token, names: newTable[string](maxKnown, nameTime), kinds: newTable[string](maxKnown, nameTime), roots: newTable[root](maxRoots, 0)}
}

func newTable[V any](most int, keep time.Duration) table[V] {
	return table[V]{entries: map[string]entry[V]{}, most: most, keep: keep}
}

// name is how a person is called; empty: unknown.
func (d *directory) name(ctx context.Context, id string) string {
	if !idRule().MatchString(id) {
		return ""
	}
	return find(ctx, &d.names, id, d.fetchName)
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
		d.kinds.put(id, entry[string]{value: kindGroup})
		return kindGroup
	case "app_home":
		return kindDM
	default: // channel, group
		return kindChannel
	}
	if strings.HasPrefix(id, "D") {
		return kindDM
	}
	return cmp.Or(find(ctx, &d.kinds, id, d.fetchKind), kindChannel)
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
func find[V any](ctx context.Context, t *table[V], id string, fetch func(ctx context.Context, id string) (V, error)) V {
	now := time.Now()
	e, ok := t.entries[id]
	if ok && (e.until.IsZero() || now.Before(e.until)) || now.Before(t.closed) {
		return e.value
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	value, err := fetch(ctx, id)
	read := entry[V]{value: value}
	switch {
	case err != nil:
		read.value, read.until = e.value, now.Add(unknownTime)
		t.closed = now.Add(paused(err))
	case t.keep > 0:
		read.until = now.Add(t.keep)
	}
	t.put(id, read)
	return read.value
}

// paused is how long nothing is looked up after an error: for the time that the platform demands, and for a
// while when it does not answer, because each look-up would hold up a message. An answer that is not understood is one.
func paused(err error) time.Duration {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.retryAfter
	}
	if f, ok := errors.AsType[*failure](err); ok && f.answered {
		return 0
	}
	return unknownTime
}

// put notes what is known about an id.
func (t *table[V]) put(id string, e entry[V]) {
	if _, ok := t.entries[id]; !ok && len(t.entries) >= t.most {
		clear(t.entries)
	}
	t.entries[id] = e
}
