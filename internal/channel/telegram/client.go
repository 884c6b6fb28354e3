package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
)

const (
	// maxBody is the most bytes of an answer.
	maxBody = 1 << 20
	// callLimit bounds a call of a method that does not wait for something.
	callLimit = 30 * time.Second
	// maxRetryAfter bounds the wait that an answer demands: no delivery lives longer than a day.
	maxRetryAfter = 24 * time.Hour
)

// sending has the connections of all senders of the process: each agent has a sender of its own
// for the account that all share.
var sending = channel.NewTransport()

// client calls methods of the Bot API.
type client struct {
	name, api, ref string
	resolve        channel.Resolve
	transport      *http.Transport
}

func newClient(name string, d channel.Definition, resolve channel.Resolve, transport *http.Transport) *client {
	return &client{name: name, api: d.Address(publicAPI), ref: d.Token, resolve: resolve, transport: transport}
}

var tokenRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,20}:[A-Za-z0-9_-]{1,256}$`) })

func (c *client) token(ctx context.Context) (string, error) {
	return channel.Token{Account: c.name, Key: "token", Ref: c.ref, Form: tokenRule(), What: tokenWhat}.Read(ctx, c.resolve)
}

// refusal is an answer that is not ok. Error holds what may be shown: the description is the
// platform's, and goes to logs.
type refusal struct {
	method      string
	status      int
	description string
	retryAfter  time.Duration
	migratedTo  int64 // the id that a group has now
}

func (e *refusal) Error() string { return fmt.Sprintf("%s answered %d", e.method, e.status) }

// logged is the error with what the platform says about it.
func (e *refusal) logged() error {
	if e.description == "" {
		return e
	}
	return fmt.Errorf("%w: %s", e, e.description)
}

// says reports whether the description contains one of the phrases.
func (e *refusal) says(phrases ...string) bool {
	for _, p := range phrases {
		if strings.Contains(strings.ToLower(e.description), p) {
			return true
		}
	}
	return false
}

// failure is a call without an answer that can be read. Its cause is found by errors.Is alone: its
// text may quote the address, which has the token.
type failure struct {
	method, why string
	detail      string // of the cause, without the token; for logs
	left        bool   // the request was written
	cause       error
}

func (e *failure) Error() string {
	if e.detail == "" {
		return e.method + ": " + e.why
	}
	return e.method + ": " + e.why + ": " + e.detail
}

// Is reports whether the cause is the target.
func (e *failure) Is(target error) bool { return errors.Is(e.cause, target) }

// answer is what each method answers.
type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int64 `json:"retry_after"`
		MigratedTo int64 `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// call calls a method and reads its result into out, which may be nil. Errors: a *refusal or a
// *failure.
func (c *client) call(ctx context.Context, token, method string, params, out any) error {
	doc, err := json.Marshal(params)
	if err != nil {
		return &failure{method: method, why: "its parameters cannot be encoded", cause: err}
	}
	return c.callWith(ctx, token, method, channel.JSON(doc), out)
}

// callWith is call with a body, which it closes.
func (c *client) callWith(ctx context.Context, token, method string, in *channel.Body, out any) error {
	res, err := c.do(ctx, token, method, "/bot"+token+"/"+method, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := boundary.Body(res.Body, maxBody)
	if err != nil {
		why := "the answer ended early"
		if errors.Is(err, boundary.ErrTooLarge) {
			why = fmt.Sprintf("the answer is longer than %d bytes", maxBody)
		}
		return &failure{method: method, why: why, left: true, cause: err}
	}
	var a answer
	err = json.Unmarshal(body, &a)
	switch {
	case err == nil && a.OK && res.StatusCode == http.StatusOK:
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(a.Result, out); err != nil {
			return &failure{method: method, why: "the result cannot be read", left: true, cause: err}
		}
		return nil
	case res.StatusCode == http.StatusOK && (err != nil || a.ErrorCode == 0):
		return &failure{method: method, why: "the answer cannot be read", left: true, cause: err}
	}
	r := &refusal{method: method, status: res.StatusCode, description: hide(a.Description, token)}
	if res.StatusCode == http.StatusOK {
		r.status = a.ErrorCode
	}
	r.retryAfter = time.Duration(min(max(a.Parameters.RetryAfter, 0), int64(maxRetryAfter/time.Second))) * time.Second
	r.migratedTo = a.Parameters.MigratedTo
	return r
}

// do sends one request. Without an error its head was written, so the platform may act on it.
func (c *client) do(ctx context.Context, token, method, path string, in *channel.Body) (*http.Response, error) {
	verb := http.MethodGet
	if in != nil {
		verb = http.MethodPost
	}
	req, err := channel.Request(ctx, verb, c.api+path, in)
	if err != nil { // the error would quote the address
		return nil, &failure{method: method, why: "the address of the Bot API cannot be read"}
	}
	res, left, err := channel.RoundTrip(c.transport, req)
	if err != nil {
		why := hostOf(c.api) + " cannot be reached"
		if errors.Is(err, context.DeadlineExceeded) {
			why = hostOf(c.api) + " did not answer in time"
		}
		return nil, &failure{method: method, why: why, detail: hide(err.Error(), token), left: left, cause: err}
	}
	return res, nil
}

// hide makes one line of a text from outside, without the token.
func hide(text, token string) string {
	return channel.Clean(strings.ReplaceAll(text, token, "[token]"), 200)
}

// me is the identity of the bot.
type me struct {
	ID       int64  `json:"id"`
	Username string `json:"username"`
}

// identify asks who the bot of the token is.
func (c *client) identify(ctx context.Context, token string) (me, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var who me
	err := c.call(ctx, token, "getMe", struct{}{}, &who)
	if err == nil && who.ID == 0 {
		err = &failure{method: "getMe", why: "the answer has no id"}
	}
	return who, err
}
