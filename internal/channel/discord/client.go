package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
)

const (
	// maxBody is the most bytes of an answer.
	maxBody = 1 << 20
	// callLimit bounds one request.
	callLimit = 30 * time.Second
	// uploadLimit bounds a request with a file.
	uploadLimit = 2 * time.Minute
	// maxRetryAfter bounds the wait that an answer demands: no delivery lives longer than a day.
	maxRetryAfter = 24 * time.Hour
	// agent is the User-Agent that the platform demands of a bot.
	agent = "DiscordBot (https://github.com/theclaw/agents, 1)"
)

// sending has the connections of all senders of the process: each agent has a sender of its own
// for the account that all share.
var sending = channel.NewTransport()

// client makes requests of the API.
type client struct {
	name, api, ref string
	resolve        channel.Resolve
	transport      *http.Transport
}

func newClient(name string, d channel.Definition, resolve channel.Resolve, transport *http.Transport) *client {
	return &client{name: name, api: d.Address(publicAPI), ref: d.Token, resolve: resolve, transport: transport}
}

var tokenRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,512}$`) })

func (c *client) token(ctx context.Context) (string, error) {
	return channel.Token{Account: c.name, Key: "token", Ref: c.ref, Form: tokenRule(), What: tokenWhat}.Read(ctx, c.resolve)
}

// request is one of the API. what names it in errors.
type request struct {
	what, verb, path string
	in               any               // nil: without a body
	file             *channel.Document // goes with in; nil: none
}

// refusal is an answer that is no success. Error holds what may be shown: the message is the
// platform's, and goes to logs.
type refusal struct {
	what       string
	status     int
	code       int // of the platform
	message    string
	retryAfter time.Duration
}

func (e *refusal) Error() string {
	if e.code != 0 {
		return fmt.Sprintf("%s: answered %d (%d)", e.what, e.status, e.code)
	}
	return fmt.Sprintf("%s: answered %d", e.what, e.status)
}

// failure is a request without an answer that can be read.
type failure struct {
	what, why string
	left      bool // the request was written
	err       error
}

func (e *failure) Error() string { return e.what + ": " + e.why }

// Unwrap returns the cause.
func (e *failure) Unwrap() error { return e.err }

// call makes a request and reads its answer into out, which may be nil. The header is of the
// answer, nil without one. Errors: a *refusal or a *failure.
func (c *client) call(ctx context.Context, token string, r request, out any) (http.Header, error) {
	limit := callLimit
	if r.file != nil {
		limit = uploadLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body *channel.Body
	if r.in != nil {
		doc, err := json.Marshal(r.in)
		if err != nil {
			return nil, &failure{what: r.what, why: "the request cannot be encoded", err: err}
		}
		body = channel.JSON(doc)
		if r.file != nil {
			if body, err = r.file.Form(ctx, [][2]string{{"payload_json", string(doc)}}, "files[0]"); err != nil {
				return nil, err
			}
			defer func() { _ = body.Close() }() // it was only read
		}
	}
	req, err := channel.Request(ctx, r.verb, c.api+version+r.path, body)
	if err != nil {
		return nil, &failure{what: r.what, why: "the address cannot be read", err: err}
	}
	req.Header.Set("Authorization", "Bot "+token)
	req.Header.Set("User-Agent", agent)
	res, left, err := channel.RoundTrip(c.transport, req)
	if err != nil {
		why := "the API cannot be reached"
		if errors.Is(err, context.DeadlineExceeded) {
			why = "the API did not answer in time"
		}
		return nil, &failure{what: r.what, why: why, left: left, err: err}
	}
	defer res.Body.Close()
	answer, err := boundary.Body(res.Body, maxBody)
	if err != nil && res.StatusCode/100 == 2 {
		return res.Header, &failure{what: r.what, why: "the answer ended early, or is too long", left: true, err: err}
	}
	if res.StatusCode/100 != 2 {
		return res.Header, refused(r.what, res, answer)
	}
	if out == nil {
		return res.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return res.Header, &failure{what: r.what, why: "the answer cannot be read", left: true, err: err}
	}
	return res.Header, nil
}

// refused reads an answer that is no success.
func refused(what string, res *http.Response, body []byte) *refusal {
	var doc struct {
		Code       int     `json:"code"`
		Message    string  `json:"message"`
		RetryAfter float64 `json:"retry_after"`
	}
	r := &refusal{what: what, status: res.StatusCode}
	if json.Unmarshal(body, &doc) == nil { // a proxy of the platform answers no JSON
		r.code, r.message = doc.Code, channel.Clean(doc.Message, 200)
	}
	if res.StatusCode == http.StatusTooManyRequests {
		seconds, err := strconv.ParseFloat(res.Header.Get("Retry-After"), 64)
		if err != nil {
			seconds = doc.RetryAfter
		}
		r.retryAfter = max(duration(seconds), time.Second)
	}
	return r
}

// duration returns seconds that the platform states.
func duration(seconds float64) time.Duration {
	if !(seconds > 0) { // also for what is no number
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}

// user is a person or a bot.
type user struct {
	ID         string `json:"id"`
	Username   string `json:"username"`
	GlobalName string `json:"global_name"`
	Bot        bool   `json:"bot"`
}

// identify asks who the bot of the token is.
func (c *client) identify(ctx context.Context, token string) (user, error) {
	var who user
	_, err := c.call(ctx, token, request{what: "users/@me", verb: http.MethodGet, path: "/users/@me"}, &who)
	if err == nil && !isID(who.ID) {
		err = &failure{what: "users/@me", why: "the answer has no id"}
	}
	return who, err
}

// isID reports whether a text is an id of the platform.
func isID(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}

// down says why an account cannot receive.
func (c *client) down(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e
	}
	e := &channel.Error{Class: channel.Unavailable, What: "discord: " + channel.Clean(err.Error(), 200), Err: err}
	if r, ok := errors.AsType[*refusal](err); ok {
		e.RetryAfter = r.retryAfter
		if r.status == http.StatusUnauthorized {
			return c.tokenRefused(err)
		}
		return e
	}
	e.Fix = "check the network, and the address in api"
	return e
}

// tokenRefused is the error of an account whose token the platform does not take.
func (c *client) tokenRefused(err error) *channel.Error {
	return &channel.Error{
		Class: channel.Unavailable, Reason: channel.ReasonAuth, What: "discord refused the token of " + c.name,
		Fix: "set " + channel.Clean(c.ref, 200) + " to the token of the bot, then restart the account", Err: err,
	}
}
