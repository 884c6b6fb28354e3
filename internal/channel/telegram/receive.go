package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
)

const (
	// pollTime is how long the platform keeps a request open while there is no update.
	pollTime = 25 * time.Second
	// pollLimit is when a request without an answer is given up, together with its connection.
	pollLimit = 90 * time.Second
	// pollSize is the most updates of an answer, which is what the platform permits.
	pollSize = 100
	// pressedLimit bounds the confirmation of a pressed button. It is lost without harm: the
	// button then shows for some time that it waits.
	pressedLimit = 5 * time.Second
	maxPressed   = 64
)

// receiver takes in the updates of one account.
type receiver struct {
	name       string
	definition channel.Definition
	resolve    channel.Resolve
}

// cursorName is the name under which the offset is kept.
const cursorName = "offset"

// Receive implements [channel.Receiver].
func (r *receiver) Receive(ctx context.Context, in channel.Intake) error {
	c := newClient(r.name, r.definition, r.resolve, channel.NewTransport())
	defer c.transport.CloseIdleConnections()
	err := receive(ctx, c, in)
	if ctx.Err() != nil {
		return nil
	}
	return c.down(err)
}

func receive(ctx context.Context, c *client, in channel.Intake) error {
	token, err := c.token(ctx)
	if err != nil {
		return err
	}
	who, err := c.identify(ctx, token)
	if err != nil {
		return err
	}
	if err := in.Connected(strconv.FormatInt(who.ID, 10), "@"+who.Username); err != nil {
		return err
	}
	kept, err := in.Cursor(ctx, cursorName)
	if err != nil {
		return fmt.Errorf("read the cursor: %w", err)
	}
	w := newWindow(kept, server(c.api), time.Now(), func(value string) { in.Keep(cursorName, value) })
	defer w.close()

	if kept, err = in.Cursor(ctx, groupsName); err != nil {
		return fmt.Errorf("read the cursor: %w", err)
	}
	known := loadGroups(kept)

	pressed := make(chan string, maxPressed)
	ctx, cancel := context.WithCancel(ctx)
	var confirming sync.WaitGroup
	confirming.Go(func() { confirm(ctx, c, token, pressed) })
	defer confirming.Wait()
	defer cancel()

	size := pollSize
	for {
		if err := in.Ready(); err != nil {
			return err
		}
		list, err := poll(ctx, c, token, w.ask(time.Now()), size)
		if errors.Is(err, boundary.ErrTooLarge) && size > 1 {
			size = max(size/4, 1) // the texts of 100 updates can be longer than an answer may be
			continue
		}
		if err != nil {
			return err
		}
		size = min(2*size, pollSize)
		fresh, numbering := w.take(list, time.Now())
		for _, u := range fresh {
			stored := func() { w.stored(u.ID, numbering) }
			m, ok := c.read(u, who, token)
			if !ok {
				if u.message != nil && u.message.MovedTo != 0 {
					if value, ok := known.moved(number(u.message.Chat.ID), number(u.message.MovedTo)); ok {
						if err := in.Save(ctx, groupsName, value); err != nil {
							return fmt.Errorf("store the new id of a group: %w", err)
						}
					}
				}
				in.Ignored()
				stored()
				continue
			}
			m.SessionID = known.id(m.SessionID)
			if u.pressed != nil {
				stored = func() {
					w.stored(u.ID, numbering)
					select {
					case pressed <- u.pressed.ID:
					default:
					}
				}
			}
			if err := in.Take(ctx, m, stored); err != nil {
				return err
			}
		}
		if err := w.wait(ctx, len(fresh) > 0); err != nil {
			return err
		}
	}
}

// poll asks for the updates from offset on; 0: from the first that is not acknowledged.
func poll(ctx context.Context, c *client, token string, offset int64, size int) ([]update, error) {
	within, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	var raw []json.RawMessage
	err := c.call(within, token, "getUpdates", struct {
		Offset  int64    `json:"offset,omitempty"`
		Limit   int      `json:"limit"`
		Timeout int      `json:"timeout"`
		Allowed []string `json:"allowed_updates"`
	}{offset, size, int(pollTime / time.Second), allowed}, &raw)
	if err != nil {
		return nil, err
	}
	list := make([]update, 0, len(raw))
	for _, doc := range raw {
		u, err := readUpdate(doc)
		if err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

// confirm shows people that the button they pressed was noticed, until ctx ends.
func confirm(ctx context.Context, c *client, token string, pressed <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-pressed:
			within, cancel := context.WithTimeout(ctx, pressedLimit)
			_ = c.call(within, token, "answerCallbackQuery", struct {
				ID string `json:"callback_query_id"`
			}{id}, nil) // the button shows for a while that it waits
			cancel()
		}
	}
}

// down says why an account cannot receive.
func (c *client) down(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e
	}
	e := &channel.Error{Class: channel.Unavailable, Err: err}
	if f, ok := errors.AsType[*failure](err); ok {
		e.What, e.Fix = fmt.Sprintf("telegram: %s: %s", f.method, f.why), "check the network, and the address in api"
		return e
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return err
	}
	e.Err = r.logged()
	switch {
	case r.unauthorized():
		e.Reason = channel.ReasonAuth
		e.What = fmt.Sprintf("telegram refused the token of %s: %v", c.name, r)
		e.Fix = "set " + channel.Clean(c.ref, 200) + " to the token that @BotFather shows, then restart the account"
	case r.status == http.StatusConflict:
		e.Reason = channel.ReasonConflict
		e.What, e.Fix = "another program receives with this token", "stop it, or create a new token"
		if r.says("webhook") {
			e.What, e.Fix = "the bot has a webhook", "remove it with the method deleteWebhook, or create another bot"
		}
	default:
		e.What, e.RetryAfter = fmt.Sprintf("telegram: %v", r), r.retryAfter
	}
	return e
}

// unauthorized reports whether the token is what was refused: 401 for one that was revoked, 404
// for one that never was a token.
func (e *refusal) unauthorized() bool {
	return e.status == http.StatusUnauthorized || e.status == http.StatusNotFound
}
