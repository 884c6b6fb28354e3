package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	maxBody = 4 << 20
	// callLimit bounds a call of a method.
	callLimit = 30 * time.Second
	// maxRetryAfter bounds the wait that an answer demands: no delivery lives longer than a day.
	maxRetryAfter = 24 * time.Hour
)

// sending has the connections of all senders of the process: each agent has a sender of its own
// for the account that all share.
var sending = channel.NewTransport()

// client calls methods of the API.
type client struct {
	name, api      string
	botRef, appRef string
	resolve        channel.Resolve
	transport      *http.Transport
}

func newClient(name string, d channel.Definition, resolve channel.Resolve, transport *http.Transport) *client {
	return &client{name: name, api: d.Address(publicAPI), botRef: d.Token, appRef: d.AppToken, resolve: resolve, transport: transport}
}

// Forms of tokens. What follows the prefix is opaque.
var (
	botToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^xoxb-[A-Za-z0-9-]{1,512}$`) })
	appToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^xapp-[A-Za-z0-9-]{1,512}$`) })
)

// token reads the token of the bot.
func (c *client) token(ctx context.Context) (string, error) {
	return channel.Token{Account: c.name, Key: "token", Ref: c.botRef, Form: botToken(), What: tokenWhat}.Read(ctx, c.resolve)
}

// appToken reads the token that opens sockets.
func (c *client) appToken(ctx context.Context) (string, error) {
	return channel.Token{
		Account: c.name, Key: "app_token", Ref: c.appRef, Form: appToken(), What: "an App-Level Token with the scope connections:write, xapp-...",
	}.Read(ctx, c.resolve)
}

// refusal is an answer that is not ok.
type refusal struct {
	method     string
	status     int
	code       string // the platform's word, such as channel_not_found; empty: none
	needed     string // the scope that is missing
	retryAfter time.Duration
}

// Error names the method and the platform's word for what is wrong.
func (e *refusal) Error() string {
	if e.code == "" {
		return fmt.Sprintf("%s answered %d", e.method, e.status)
	}
	return fmt.Sprintf("%s answered %s", e.method, e.code)
}

// failure is a call without an answer that can be read.
type failure struct {
	method, why string
	left        bool // the request was written
	answered    bool // the answer is complete, and is not understood
	cause       error
}

func (e *failure) Error() string { return e.method + ": " + e.why }

// Is reports whether the cause is the target.
func (e *failure) Is(target error) bool { return errors.Is(e.cause, target) }

// codeRule is what a word of the platform may look like: it is shown to people.
var codeRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_:, .-]{1,120}$`) })

func word(s string) string {
	if !codeRule().MatchString(s) {
		return ""
	}
	return s
}

// write calls a method that changes something; its parameters are JSON.
func (c *client) write(ctx context.Context, token, method string, params, out any) error {
	doc, err := json.Marshal(params)
	if err != nil {
		return &failure{method: method, why: "its parameters cannot be encoded", cause: err}
	}
	return c.call(ctx, token, method, "application/json; charset=utf-8", string(doc), out)
}

// read calls a method that reads something: those take forms only.
func (c *client) read(ctx context.Context, token, method string, params url.Values, out any) error {
	return c.call(ctx, token, method, "application/x-www-form-urlencoded", params.Encode(), out)
}

// call calls a method and reads its answer into out, which may be nil. Errors: a *refusal or a
// *failure.
func (c *client) call(ctx context.Context, token, method, form, params string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	res, err := c.do(ctx, token, method, http.MethodPost, c.api+"/"+method, form, params)
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
	var a struct {
		OK     bool   `json:"ok"`
		Error  string `json:"error"`
		Needed string `json:"needed"`
	}
	err = json.Unmarshal(body, &a)
	switch {
	case err == nil && a.OK && res.StatusCode == http.StatusOK:
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			return &failure{method: method, why: "the answer cannot be read", left: true, answered: true, cause: err}
		}
		return nil
	case res.StatusCode == http.StatusOK && (err != nil || a.Error == ""):
		return &failure{method: method, why: "the answer cannot be read", left: true, answered: true, cause: err}
	}
	return &refusal{
		method: method, status: res.StatusCode, code: word(a.Error), needed: word(a.Needed), retryAfter: retryAfter(res),
	}
}

func retryAfter(res *http.Response) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(res.Header.Get("Retry-After")), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
}

// do sends one request. Without an error its head was written, so the platform may act on it.
func (c *client) do(
	ctx context.Context, token, method, verb, address, form, params string,
) (*http.Response, error) {
	var body io.Reader
	if params != "" {
		body = strings.NewReader(params)
	}
	req, err := http.NewRequestWithContext(ctx, verb, address, body)
	if err != nil { // the error would quote the address
		return nil, &failure{method: method, why: "its address cannot be read"}
	}
	if form != "" {
		req.Header.Set("Content-Type", form)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, left, err := channel.RoundTrip(c.transport, req)
	if err != nil {
		why := hostOf(address) + " cannot be reached"
		if errors.Is(err, context.DeadlineExceeded) {
			why = hostOf(address) + " did not answer in time"
		}
		return nil, &failure{method: method, why: why, left: left, cause: err}
	}
	return res, nil
}

// me is the identity of the bot.
type me struct {
	Team string `json:"team_id"`
	User string `json:"user_id"`
	Bot  string `json:"bot_id"`
	Name string `json:"user"`
}

// identity is the bot in its workspace.
func (w me) identity() string { return w.User + "@" + w.Team }

// identify asks who the bot of a token is.
func (c *client) identify(ctx context.Context, token string) (me, error) {
	var who me
	err := c.read(ctx, token, "auth.test", nil, &who)
	if err == nil && (!idRule().MatchString(who.User) || !idRule().MatchString(who.Team)) {
		err = &failure{method: "auth.test", why: "the answer has no id"}
	}
	return who, err
}

// Ids of the platform.
var (
	idRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9]{1,63}$`) })
	tsRule = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,9}$`)
)

// down says why a call did not succeed, for an account that receives and for a send.
//
//	refused token, missing scope   Unavailable  CHANNEL_AUTH: goes on once it is corrected
//	429                            Unavailable  after the time that the answer states
//	5xx, internal_error ...        Unavailable  the platform may have acted on it
//	no answer                      Unavailable  in doubt when the request was written
//	other                          Rejected     no such channel: the same request is refused again
func (c *client) down(err error) *channel.Error {
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e
	}
	e := &channel.Error{Class: channel.Unavailable, Err: err}
	if f, ok := errors.AsType[*failure](err); ok {
		e.What, e.Fix, e.InDoubt = fmt.Sprintf("slack: %v", f), "check the network, and the address in api", f.left
		return e
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return channel.AsError(err)
	}
	e.What = fmt.Sprintf("slack: %v", r)
	ref := c.botRef
	if r.method == methodOpen {
		ref = c.appRef
	}
	switch {
	case r.status == http.StatusTooManyRequests || r.code == "ratelimited" || r.code == "rate_limited":
		e.RetryAfter = max(r.retryAfter, time.Second)
	case r.code == "missing_scope":
		e.Reason = channel.ReasonAuth
		e.Fix = fmt.Sprintf("add the scope %s to the app, install it again, and set %s to its token",
			r.scope(), channel.Clean(ref, 200))
	case refusedTokens[r.code], r.status == http.StatusUnauthorized, r.status == http.StatusForbidden:
		e.Reason = channel.ReasonAuth
		e.What = fmt.Sprintf("slack refused a token of %s: %v", c.name, r)
		e.Fix = "set " + channel.Clean(ref, 200) + " to the token that the settings of the app show"
	case r.status/100 == 5 || broken[r.code]:
		e.InDoubt = true
	case r.status/100 == 4 && r.code == "":
		e.Fix = "check the address in api"
	default:
		e.Class, e.Fix = channel.Rejected, fixes[r.code]
	}
	return e
}

func (e *refusal) scope() string {
	if e.needed == "" {
		return "that " + e.method + " needs"
	}
	return e.needed
}

// refusedTokens are the words for a token that cannot be used.
var refusedTokens = map[string]bool{
	"invalid_auth": true, "not_authed": true, "account_inactive": true, "token_revoked": true, "token_expired": true,
	"not_allowed_token_type": true, "no_permission": true, "org_login_required": true, "ekm_access_denied": true,
	"access_denied": true, "two_factor_setup_required": true, "enterprise_is_restricted": true,
}

// broken are the words for a platform that cannot serve now.
var broken = map[string]bool{
	"internal_error": true, "fatal_error": true, "service_unavailable": true, "request_timeout": true,
	"team_added_to_org": true, "accesslimited": true, "team_access_not_granted": true,
}

// fixes say what to do about what is refused.
var fixes = map[string]string{
	"channel_not_found":                     "invite the bot to the channel: /invite and its name",
	"not_in_channel":                        "invite the bot to the channel: /invite and its name",
	"is_archived":                           "unarchive the channel",
	"restricted_action":                     "permit the app to post, in the settings of the workspace",
	"msg_too_long":                          "send a shorter text",
	"user_not_found":                        "name a person of the workspace",
	"cannot_dm_bot":                         "bots cannot be written to",
	"messages_tab_disabled":                 "switch on the messages tab in the settings of the app (App Home)",
	"thread_not_found":                      "the message that began the thread was deleted",
	"cant_update_message":                   "only messages of the bot can be changed",
	"message_not_found":                     "name the id that the send returned",
	"invalid_name":                          "name an emoji of the workspace, such as :eyes:",
	"as_user_not_supported":                 "use the token of a bot, xoxb-...",
	"slack_connect_blocked":                 "ask an administrator to permit messages to people of other workspaces",
	"is_inactive":                           "the person has left the workspace",
	"restricted_action_read_only_channel":   "only some people may post there",
	"restricted_action_thread_only_channel": "answer in a thread there",
}

// hostOf is the part of an address that may be shown.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "the API"
	}
	return u.Host
}
