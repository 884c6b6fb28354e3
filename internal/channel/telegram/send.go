package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/markup"
)

const (
	// typingTime is how long a chat shows that someone writes, less the way there.
	typingTime = 4 * time.Second
	// maxCommand is the most bytes of the command of a button.
	maxCommand = 64
	// maxDocument is the largest file of a message, maxPhoto the largest that is shown as a picture, in bytes, and
	// maxCaption the longest text below it.
	maxDocument, maxPhoto = 50 << 20, 10 << 20
	maxCaption            = 1024
	// uploadLimit bounds a call that sends a file.
	uploadLimit = 2 * time.Minute
	// rowOfButtons is how many buttons are next to each other.
	rowOfButtons = 3
)

// sender sends for one account.
type sender struct {
	*client
	definition channel.Definition
}

var (
	_ channel.Channel = (*sender)(nil)
	_ channel.Typer   = (*sender)(nil)
	_ channel.Editor  = (*sender)(nil)
	_ channel.Reactor = (*sender)(nil)
	_ channel.Limiter = (*sender)(nil)

	_ channel.Documenter = (*sender)(nil)
)

// Documents implements [channel.Documenter].
func (s *sender) Documents() channel.DocumentLimit {
	return channel.DocumentLimit{Max: maxDocument, Caption: maxCaption}
}

// Name returns the name of the account.
func (s *sender) Name() string { return s.name }

// Guarantee returns [channel.None].
func (s *sender) Guarantee() channel.Guarantee { return channel.None }

// Destination returns the chat: each has limits of its own.
func (s *sender) Destination(m channel.Message) string {
	return channel.Clean(m.ReplyContext.SessionID(), 64)
}

// chatID is the id of a chat, which is a number, or @ and the name of a public one.
type chatID string

// MarshalJSON implements [json.Marshaler].
func (id chatID) MarshalJSON() ([]byte, error) {
	if strings.HasPrefix(string(id), "@") {
		return json.Marshal(string(id))
	}
	return []byte(id), nil
}

// place is where a message goes.
type place struct {
	Chat   chatID `json:"chat_id"`
	Thread int64  `json:"message_thread_id,omitempty"`
}

// outgoing are the parameters of sendMessage.
type outgoing struct {
	place
	rendered
	Preview struct {
		Off bool `json:"is_disabled"`
	} `json:"link_preview_options"`
	Reply   *replyParameters `json:"reply_parameters,omitempty"`
	Buttons *keyboard        `json:"reply_markup,omitempty"`

	document *channel.Document // nil: none
	photo    bool              // it is shown as a picture
}

// form are the parameters of sendDocument and sendPhoto but for the file.
func (o outgoing) form() (fields [][2]string, err error) {
	add := func(name string, value any) {
		doc, failed := json.Marshal(value)
		err = errors.Join(err, failed)
		fields = append(fields, [2]string{name, strings.Trim(string(doc), `"`)})
	}
	add("chat_id", o.Chat)
	if o.Thread != 0 {
		add("message_thread_id", o.Thread)
	}
	if o.Text != "" {
		fields = append(fields, [2]string{"caption", o.Text})
	}
	if len(o.Entities) > 0 {
		add("caption_entities", o.Entities)
	}
	if o.Reply != nil {
		add("reply_parameters", o.Reply)
	}
	if o.Buttons != nil {
		add("reply_markup", o.Buttons)
	}
	return fields, err
}

type replyParameters struct {
	ID int64 `json:"message_id"`
	// Without is set: the message is sent as well when the one it answers was deleted.
	Without bool `json:"allow_sending_without_reply"`
}

type keyboard struct {
	Rows [][]button `json:"inline_keyboard"`
}

type button struct {
	Text    string `json:"text"`
	Command string `json:"callback_data"`
}

// where reads the chat of a reply_context.
func where(rc channel.ReplyContext) (place, error) {
	need, err := rc.Need("session_id")
	if err != nil {
		return place{}, err
	}
	p := place{Chat: chatID(need[0])}
	if n, err := strconv.ParseInt(need[0], 10, 64); err == nil {
		p.Chat = chatID(number(n))
	} else if !strings.HasPrefix(need[0], "@") || len(need[0]) > 64 {
		return place{}, channel.Reject(channel.ReasonReplyContext, "session_id is not the id of a chat of Telegram", "answer an event that came from a chat")
	}
	if id := rc.PlatformThread(); id != "" {
		p.Thread, err = strconv.ParseInt(id, 10, 64)
		if err != nil {
			return place{}, channel.Reject(channel.ReasonReplyContext, "platform_thread is not the id of a topic", "answer an event that came from a topic")
		}
	}
	return p, nil
}

// Send sends m. The receipt has the id of the message.
func (s *sender) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	p, err := where(m.ReplyContext)
	if err != nil {
		return channel.Receipt{}, err
	}
	token, err := s.token(ctx)
	if err != nil {
		return channel.Receipt{}, err
	}
	out := outgoing{place: p, Reply: s.answers(m)}
	out.rendered, out.Buttons = compose(m)
	out.Preview.Off = true
	if d := m.Document; d != nil {
		out.document, out.photo = d, d.Image() && d.MIME != "image/gif" && d.Size <= maxPhoto
	}
	id, err := s.post(ctx, token, out)
	if err != nil {
		return channel.Receipt{}, s.failed(ctx, err)
	}
	return channel.Receipt{ProviderID: id}, nil
}

// answers says which message m answers on the screen; nil: it names none.
func (s *sender) answers(m channel.Message) *replyParameters {
	id, err := strconv.ParseInt(m.ReplyContext.ReplyToID(), 10, 64)
	if err != nil || !s.definition.Names(m) {
		return nil
	}
	return &replyParameters{id, true}
}

// compose returns the text and the buttons of a message; those of a text in parts are below the
// last one. A command that is too long for a button is a line of the text.
func compose(m channel.Message) (rendered, *keyboard) {
	text, keys := m.Text, &keyboard{}
	var row []button
	for _, b := range m.Buttons {
		switch {
		case m.More || b.Text == "" || b.Command == "":
		case len(b.Command) > maxCommand:
			text += fmt.Sprintf("\n\n%s: `%s`", b.Text, b.Command)
		default:
			if row = append(row, button(b)); len(row) == rowOfButtons {
				keys.Rows, row = append(keys.Rows, row), nil
			}
		}
	}
	if len(row) > 0 {
		keys.Rows = append(keys.Rows, row)
	}
	if len(keys.Rows) == 0 {
		keys = nil
	}
	return render(text), keys
}

// post sends one message and returns its id. It sends once more where the platform refuses the
// formatting, without it, or to show a file as a picture, as a document, and where a group became a
// supergroup, which has another id.
func (s *sender) post(ctx context.Context, token string, out outgoing) (string, error) {
	if err := s.admit(ctx, token, out.Chat); err != nil {
		return "", err
	}
	for repeated := 0; ; repeated++ {
		var message struct {
			ID int64 `json:"message_id"`
		}
		err := s.one(ctx, token, out, &message)
		if err == nil {
			return number(message.ID), nil
		}
		r, ok := errors.AsType[*refusal](err)
		switch {
		case !ok || r.status != http.StatusBadRequest || repeated == 3:
			return "", err
		case r.migratedTo != 0:
			out.Chat, out.Thread = chatID(number(r.migratedTo)), 0
		case r.formatting(out.Entities):
			out.Entities = nil
		case out.photo:
			out.photo = false
		default:
			return "", err
		}
	}
}

// one makes the request of a message.
func (s *sender) one(ctx context.Context, token string, out outgoing, result any) error {
	method, name := "sendDocument", "document"
	switch {
	case out.document == nil:
		return s.within(ctx, token, "sendMessage", out, result)
	case out.photo:
		method, name = "sendPhoto", "photo"
	}
	ctx, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	fields, err := out.form()
	if err != nil {
		return &failure{method: method, why: "its parameters cannot be encoded", cause: err}
	}
	body, err := out.document.Form(ctx, fields, name)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	return s.callWith(ctx, token, method, body, result)
}

// formatting reports whether the entities of a text were refused.
func (e *refusal) formatting(entities []markup.Entity) bool {
	return len(entities) > 0 && e.status == http.StatusBadRequest && e.says("entit")
}

// admit waits for the rate of a chat. Ids of people are positive.
func (s *sender) admit(ctx context.Context, token string, chat chatID) error {
	id, _, _ := strings.Cut(token, ":") // of the bot; what follows is the secret
	group := strings.HasPrefix(string(chat), "-") || strings.HasPrefix(string(chat), "@")
	return sent.admit(ctx, s.api+" "+id, string(chat), group)
}

// within calls a method that does not wait for something.
func (s *sender) within(ctx context.Context, token, method string, params, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return s.call(ctx, token, method, params, out)
}

// failed says how a call ended that did not succeed. ctx is the caller's, so that its end differs
// from a platform that is slow.
//
//	401 404          Unavailable   the token is refused; what waits is sent once it is corrected
//	429              Unavailable   after the time that the answer states
//	5xx              Unavailable   the platform may have acted on it
//	no answer        Unavailable   in doubt when the request was written
//	other            Rejected      blocked, no such chat: the same request is refused again
func (s *sender) failed(ctx context.Context, err error) *channel.Error {
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e
	}
	e := &channel.Error{Class: channel.Unavailable, Err: err}
	if f, ok := errors.AsType[*failure](err); ok {
		e.What, e.InDoubt = fmt.Sprintf("telegram: %s: %s", f.method, f.why), f.left
		if errors.Is(ctx.Err(), context.Canceled) {
			e.Class, e.What = channel.Interrupted, "the send was stopped"
		}
		return e
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return channel.AsError(err)
	}
	e.What, e.Err = fmt.Sprintf("telegram: %v", r), r.logged()
	switch {
	case r.unauthorized():
		e.Reason = channel.ReasonAuth
		e.Fix = "set " + channel.Clean(s.ref, 200) + " to the token that @BotFather shows"
	case r.status == http.StatusTooManyRequests:
		e.RetryAfter = max(r.retryAfter, time.Second)
	case r.status/100 == 5:
		e.InDoubt = true
	default:
		e.Class = channel.Rejected
		if r.description != "" {
			e.What += ": " + r.description
		}
		if r.status == http.StatusForbidden {
			e.Fix = "the person blocked the bot, or removed it from the chat"
		}
	}
	return e
}

// Typing implements [channel.Typer].
func (s *sender) Typing(ctx context.Context, to channel.ReplyContext) (time.Duration, error) {
	p, err := where(to)
	if err != nil {
		return 0, err
	}
	return typingTime, s.act(ctx, "sendChatAction", struct {
		place
		Action string `json:"action"`
	}{p, "typing"})
}

// messageOf reads the id of a receipt, or of a message of others.
func messageOf(providerID string) (int64, error) {
	id, err := strconv.ParseInt(providerID, 10, 64)
	if err != nil {
		return 0, channel.Reject(channel.ReasonReplyContext, "the id is not that of a message of Telegram", "name the id that the send returned")
	}
	return id, nil
}

// target is which message of a chat a method changes.
type target struct {
	Chat chatID `json:"chat_id"`
	ID   int64  `json:"message_id"`
}

func which(providerID string, rc channel.ReplyContext) (target, error) {
	id, err := messageOf(providerID)
	if err != nil {
		return target{}, err
	}
	p, err := where(rc)
	return target{p.Chat, id}, err
}

// Edit implements [channel.Editor].
func (s *sender) Edit(ctx context.Context, providerID string, m channel.Message) error {
	at, err := which(providerID, m.ReplyContext)
	if err != nil {
		return err
	}
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	edit := struct {
		target
		rendered
		Buttons *keyboard `json:"reply_markup,omitempty"`
	}{target: at}
	edit.rendered, edit.Buttons = compose(m)
	if err := s.admit(ctx, token, at.Chat); err != nil {
		return err
	}
	err = s.within(ctx, token, "editMessageText", edit, nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.formatting(edit.Entities) {
		edit.Entities = nil
		err = s.within(ctx, token, "editMessageText", edit, nil)
	}
	if r, ok := errors.AsType[*refusal](err); err == nil || ok && r.says("message is not modified") {
		return nil // it has this text
	}
	return s.failed(ctx, err)
}

// Delete implements [channel.Editor]. A message that is not there any more is deleted.
func (s *sender) Delete(ctx context.Context, providerID string, to channel.ReplyContext) error {
	at, err := which(providerID, to)
	if err != nil {
		return err
	}
	err = s.act(ctx, "deleteMessage", at)
	if r, ok := errors.AsType[*refusal](err); ok && r.says("message to delete not found") {
		return nil
	}
	return err
}

// React implements [channel.Reactor].
func (s *sender) React(ctx context.Context, providerID, mark string, to channel.ReplyContext) error {
	at, err := which(providerID, to)
	if err != nil {
		return err
	}
	type reaction struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
	}
	marks := []reaction{}
	if mark != "" {
		marks = append(marks, reaction{"emoji", mark})
	}
	return s.act(ctx, "setMessageReaction", struct {
		target
		Marks []reaction `json:"reaction"`
	}{at, marks})
}

// act calls a method whose result says nothing.
func (s *sender) act(ctx context.Context, method string, params any) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	if err := s.within(ctx, token, method, params, nil); err != nil {
		return s.failed(ctx, err)
	}
	return nil
}
