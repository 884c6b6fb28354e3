package discord

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// maxCharacters is the longest text of a message.
	maxCharacters = 2000
	// maxDocument is the largest file of a message on a server without boosts, in bytes.
	maxDocument = 10 << 20
	// typingTime is how long a channel shows that an answer is written, less the way there.
	typingTime = 8 * time.Second
	// maxLimits bounds the channels whose limits are known.
	maxLimits = 4096
	// nonceTime is how long the platform knows a nonce; it promises some minutes.
	nonceTime = 2 * time.Minute
	// clocks is how far ours and that of the platform may differ, where it does not state its time.
	clocks = 10 * time.Second
	// searched is how many messages of a channel are searched for one that may have arrived.
	searched = 100
	// maxDirect bounds the direct channels that are known without a request.
	maxDirect = 4096
	// maxMarks is how many marks of ours are removed from a message.
	maxMarks = 20
	// Of buttons: the most next to each other and below each other, and characters of one.
	rowOfButtons, maxRows = 5, 5
	maxLabel, maxCommand  = 80, 100
	// noPreviews is the flag of a message without previews of its links.
	noPreviews = 1 << 2
)

// Codes of refusals.
const codeUnknownMessage = 10008

// sender sends for one account.
type sender struct {
	*client
	definition channel.Definition

	mu     sync.Mutex
	direct map[string]string // ids of direct channels, by [channel.Fingerprint] of token and person
}

var (
	_ channel.Channel = (*sender)(nil)
	_ channel.Limiter = (*sender)(nil)
	_ channel.Typer   = (*sender)(nil)
	_ channel.Editor  = (*sender)(nil)
	_ channel.Reactor = (*sender)(nil)
	_ channel.Finder  = (*sender)(nil)

	_ channel.Documenter = (*sender)(nil)
)

// Documents implements [channel.Documenter].
func (s *sender) Documents() channel.DocumentLimit {
	return channel.DocumentLimit{Max: maxDocument, Caption: maxCharacters}
}

// Name returns the name of the account.
func (s *sender) Name() string { return s.name }

// Guarantee returns [channel.Query]: the platform drops a repeat for some minutes only.
func (s *sender) Guarantee() channel.Guarantee { return channel.Query }

// Limit returns the longest text of a message, in characters.
func (s *sender) Limit() channel.Limit { return channel.Limit{Max: maxCharacters} }

// Destination returns the channel: each has limits of its own.
func (s *sender) Destination(m channel.Message) string {
	return channel.Clean(m.ReplyContext.SessionID(), 64)
}

// silent notifies no one.
type silent struct {
	Parse   []string `json:"parse"`
	Replied bool     `json:"replied_user"`
}

// outgoing is a message that is sent.
type outgoing struct {
	Content string     `json:"content"`
	Nonce   string     `json:"nonce"`
	Enforce bool       `json:"enforce_nonce"`
	Allowed silent     `json:"allowed_mentions"`
	Flags   int        `json:"flags"`
	Reply   *reference `json:"message_reference,omitempty"`
	Rows    []row      `json:"components,omitempty"`
}

// row is buttons next to each other.
type row struct {
	Type    int      `json:"type"` // 1
	Buttons []button `json:"components"`
}

type button struct {
	Type    int    `json:"type"`  // 2
	Style   int    `json:"style"` // 2: gray
	Label   string `json:"label"`
	Command string `json:"custom_id"`
}

// rows returns the buttons of a message. One whose command is too long, or is there already, is left
// out, as are those beyond the most that a message has.
func rows(list []channel.Button) (out []row) {
	commands := map[string]bool{}
	for _, b := range list {
		label := channel.Clean(b.Text, maxLabel-len("..."))
		if label == "" || b.Command == "" || utf8.RuneCountInString(b.Command) > maxCommand || commands[b.Command] {
			continue
		}
		commands[b.Command] = true
		if n := len(out); n == 0 || len(out[n-1].Buttons) == rowOfButtons {
			if n == maxRows {
				break
			}
			out = append(out, row{Type: 1})
		}
		last := &out[len(out)-1]
		last.Buttons = append(last.Buttons, button{2, 2, label, b.Command})
	}
	return out
}

type reference struct {
	ID string `json:"message_id"`
	// Fail is false: the message is sent as well when the one it answers was deleted.
	Fail bool `json:"fail_if_not_exists"`
}

// where reads the channel of a reply_context.
func where(rc channel.ReplyContext) (string, error) {
	need, err := rc.Need("session_id")
	if err != nil {
		return "", err
	}
	if !isID(need[0]) {
		return "", channel.Reject(channel.ReasonReplyContext, "session_id is not the id of a channel of Discord", "answer an event that came from a channel")
	}
	return need[0], nil
}

// Send sends m.
func (s *sender) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	id, err := where(m.ReplyContext)
	if err != nil {
		return channel.Receipt{}, err
	}
	token, err := s.token(ctx)
	if err != nil {
		return channel.Receipt{}, err
	}
	if m.MaybeDuplicate && time.Since(date(m.CreatedAt)) > nonceTime {
		found, err := s.find(ctx, token, id, m)
		if err != nil || found != "" {
			return channel.Receipt{ProviderID: found}, s.failed(ctx, err)
		}
	}
	if err := s.admit(ctx, id); err != nil {
		return channel.Receipt{}, err
	}
	out := outgoing{
		Content: m.Text, Nonce: nonce(m), Enforce: true, Allowed: silent{Parse: []string{}}, Flags: noPreviews,
	}
	if r := s.answers(m); r != "" {
		out.Reply = &reference{ID: r}
	}
	if !m.More {
		out.Rows = rows(m.Buttons)
	}
	var sent struct {
		ID string `json:"id"`
	}
	header, err := s.call(ctx, token, request{what: "send", verb: http.MethodPost, path: "/channels/" + id + "/messages", in: out, file: m.Document}, &sent)
	s.note(id, header)
	if err != nil {
		return channel.Receipt{}, s.failed(ctx, err)
	}
	return channel.Receipt{ProviderID: sent.ID}, nil
}

// answers returns the message that m answers on the screen; empty: it names none.
func (s *sender) answers(m channel.Message) string {
	if id := m.ReplyContext.ReplyToID(); isID(id) && s.definition.Names(m) {
		return id
	}
	return ""
}

// find looks for a message that may have arrived: the one with its nonce, or where none is listed one
// of the account with the same text and file that answers no other message, since the reply was made.
// It is empty where there is none.
func (s *sender) find(ctx context.Context, token, id string, m channel.Message) (string, error) {
	who, err := s.identify(ctx, token)
	if err != nil {
		return "", err
	}
	var list []message
	path := fmt.Sprintf("/channels/%s/messages?limit=%d", id, searched)
	header, err := s.call(ctx, token, request{what: "messages", verb: http.MethodGet, path: path}, &list)
	if err != nil {
		return "", err
	}
	made := platformTime(date(m.CreatedAt), header)
	for _, old := range list {
		if old.Nonce != nil {
			if old.Nonce == nonce(m) && old.Author.ID == who.ID {
				return old.ID, nil
			}
			continue
		}
		if old.Author.ID == who.ID && strings.TrimSpace(old.Content) == strings.TrimSpace(m.Text) && old.holds(m.Document) &&
			(old.Reference.ID == "" || old.Reference.ID == s.answers(m)) && !date(old.Timestamp).Before(made) {
			return old.ID, nil
		}
	}
	return "", nil
}

// holds reports whether the files of a message are a document, or none for nil. The platform keeps the
// size of a file, and changes names.
func (m *message) holds(d *channel.Document) bool {
	if d == nil {
		return len(m.Attachments) == 0
	}
	return len(m.Attachments) == 1 && m.Attachments[0].Size == d.Size
}

// nonce is by what the platform knows a message again.
func nonce(m channel.Message) string { return channel.Fingerprint(m.Key) }

// platformTime returns a time of ours as the clock of the platform has it, or up to some seconds
// earlier: an answer states its time in whole seconds, and was on its way. A reply that was sent
// shortly before another one with the same text is not taken for that.
func platformTime(t time.Time, answer http.Header) time.Time {
	stated, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		return t.Add(-clocks)
	}
	return t.Add(time.Until(stated))
}

// failed says how a request ended that did not succeed, nil for none. ctx is the caller's, so that
// its end differs from a platform that is slow.
//
//	401              Unavailable   the token is refused; what waits is sent once it is corrected
//	429              Unavailable   after the time that the answer states
//	5xx              Unavailable   the platform may have acted on it
//	no answer        Unavailable   in doubt when the request was written
//	other            Rejected      no permission, no such channel: the same request is refused again
func (s *sender) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*channel.Error](err); ok { // of the file
		return e
	}
	e := &channel.Error{Class: channel.Unavailable, What: "discord: " + channel.Clean(err.Error(), 200), Err: err}
	if f, ok := errors.AsType[*failure](err); ok {
		e.InDoubt = f.left
		if errors.Is(ctx.Err(), context.Canceled) {
			e.Class, e.What = channel.Interrupted, "the send was stopped"
		}
		return e
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return e
	}
	switch {
	case r.status == http.StatusUnauthorized:
		return s.tokenRefused(err)
	case r.status == http.StatusTooManyRequests:
		e.RetryAfter = r.retryAfter
	case r.status/100 == 5:
		e.InDoubt = true
	default:
		e.Class = channel.Rejected
		if r.message != "" {
			e.What += ": " + r.message
		}
		if r.status == http.StatusForbidden {
			e.Fix = "give the bot the permission to write there; a person may have blocked it"
		}
	}
	return e
}

// limits are when channels may be written to again, for all senders of the process.
var limits = struct {
	mu    sync.Mutex
	until map[string]time.Time
}{until: map[string]time.Time{}}

func (s *sender) limitOf(id string) string { return s.api + " " + s.ref + " " + id }

// note keeps what an answer says of the limit of its channel.
func (s *sender) note(id string, h http.Header) {
	seconds, err := strconv.ParseFloat(h.Get("X-RateLimit-Reset-After"), 64)
	if err != nil || h.Get("X-RateLimit-Remaining") != "0" {
		return
	}
	limits.mu.Lock()
	defer limits.mu.Unlock()
	if len(limits.until) >= maxLimits {
		clear(limits.until)
	}
	limits.until[s.limitOf(id)] = time.Now().Add(duration(seconds))
}

// admit waits until a channel may be written to.
func (s *sender) admit(ctx context.Context, id string) error {
	limits.mu.Lock()
	held := time.Until(limits.until[s.limitOf(id)])
	limits.mu.Unlock()
	return channel.Hold(ctx, "channel", held)
}

// Typing implements [channel.Typer].
func (s *sender) Typing(ctx context.Context, to channel.ReplyContext) (time.Duration, error) {
	id, err := where(to)
	if err != nil {
		return 0, err
	}
	return typingTime, s.act(ctx, request{what: "typing", verb: http.MethodPost, path: "/channels/" + id + "/typing"}, nil)
}

// messageOf returns the path of a message.
func messageOf(providerID string, to channel.ReplyContext) (string, error) {
	id, err := where(to)
	if err != nil {
		return "", err
	}
	if !isID(providerID) {
		return "", channel.Reject(channel.ReasonReplyContext, "the id is not that of a message of Discord", "name the id that the send returned")
	}
	return "/channels/" + id + "/messages/" + providerID, nil
}

// Edit implements [channel.Editor].
func (s *sender) Edit(ctx context.Context, providerID string, m channel.Message) error {
	path, err := messageOf(providerID, m.ReplyContext)
	if err != nil {
		return err
	}
	return s.act(ctx, request{what: "edit", verb: http.MethodPatch, path: path, in: struct {
		Content string `json:"content"`
		Allowed silent `json:"allowed_mentions"`
		Flags   int    `json:"flags"`
	}{m.Text, silent{Parse: []string{}}, noPreviews}}, nil)
}

// Delete implements [channel.Editor]. A message that is not there any more is deleted.
func (s *sender) Delete(ctx context.Context, providerID string, to channel.ReplyContext) error {
	path, err := messageOf(providerID, to)
	if err != nil {
		return err
	}
	err = s.act(ctx, request{what: "delete", verb: http.MethodDelete, path: path}, nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.code == codeUnknownMessage {
		return nil
	}
	return err
}

// React implements [channel.Reactor].
func (s *sender) React(ctx context.Context, providerID, mark string, to channel.ReplyContext) error {
	path, err := messageOf(providerID, to)
	if err != nil {
		return err
	}
	path += "/reactions/"
	if mark != "" {
		return s.act(ctx, request{what: "react", verb: http.MethodPut, path: path + url.PathEscape(mark) + "/@me"}, nil)
	}
	var m struct {
		Reactions []struct {
			Me    bool `json:"me"`
			Emoji struct {
				ID   string `json:"id"` // of one that a guild made; empty: the name is a character
				Name string `json:"name"`
			} `json:"emoji"`
		} `json:"reactions"`
	}
	if err := s.act(ctx, request{what: "message", verb: http.MethodGet, path: strings.TrimSuffix(path, "/reactions/")}, &m); err != nil {
		return err
	}
	for _, r := range m.Reactions[:min(len(m.Reactions), maxMarks)] {
		if !r.Me {
			continue
		}
		name := r.Emoji.Name
		if r.Emoji.ID != "" {
			name += ":" + r.Emoji.ID
		}
		if err := s.act(ctx, request{what: "react", verb: http.MethodDelete, path: path + url.PathEscape(name) + "/@me"}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Find implements [channel.Finder]. The direct channel of a bot and a person is always the same, so
// it is asked for once; the platform limits how often bots open some.
func (s *sender) Find(ctx context.Context, peerID string) (string, error) {
	if !isID(peerID) {
		return "", channel.Reject(channel.ReasonReplyContext, "this is not the id of a person of Discord", "name an id such as 80351110224678912")
	}
	token, err := s.token(ctx)
	if err != nil {
		return "", err
	}
	key := channel.Fingerprint(token, peerID)
	s.mu.Lock()
	id := s.direct[key]
	s.mu.Unlock()
	if id != "" {
		return id, nil
	}
	var found struct {
		ID string `json:"id"`
	}
	_, err = s.call(ctx, token, request{
		what: "users/@me/channels", verb: http.MethodPost, path: "/users/@me/channels", in: map[string]string{"recipient_id": peerID},
	}, &found)
	if err == nil && !isID(found.ID) {
		err = &failure{what: "users/@me/channels", why: "the answer has no id"}
	}
	if err != nil {
		return "", s.failed(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct == nil || len(s.direct) >= maxDirect {
		s.direct = map[string]string{}
	}
	s.direct[key] = found.ID
	return found.ID, nil
}

// act makes a request that sends no message.
func (s *sender) act(ctx context.Context, r request, out any) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	_, err = s.call(ctx, token, r, out)
	return s.failed(ctx, err)
}
