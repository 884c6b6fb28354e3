package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// SignatureHeader is the header of a signature, in both directions.
	SignatureHeader = "X-TheClaw-Signature"
	// signatureAge is how far the time of a signature may be from now.
	signatureAge = 5 * time.Minute
	maxInboundID = 256 // bytes of the id of a message
	maxDepth     = 64  // of the JSON
	maxAttached  = 10
)

// ErrSignature is why [Verify] refuses.
var ErrSignature = errors.New("the signature is missing, wrong or older than 5 minutes")

// Verify checks the signature of a body that was posted to an account, in a time that does not
// depend on how much of it is right.
func Verify(secret, header string, body []byte, now time.Time) error {
	stamp, _, ok := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if !ok || err != nil {
		return ErrSignature
	}
	at := time.Unix(seconds, 0)
	if right := Sign(secret, at, body); !hmac.Equal([]byte(right), []byte(header)) || now.Sub(at).Abs() > signatureAge {
		return ErrSignature
	}
	return nil
}

// inbound is what a program posts.
type inbound struct {
	ID   string `json:"id"`
	From struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"from"`
	Text         string `json:"text"`
	Conversation struct {
		ID   string `json:"id"`
		Kind string `json:"kind"`
	} `json:"conversation"`
	Thread      string     `json:"thread"`
	ReplyTo     *replyTo   `json:"reply_to"`
	Attachments []attached `json:"attachments"`
	Mentioned   bool       `json:"mentioned"`
}

type replyTo struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

type attached struct {
	URL  string `json:"url"`
	Data string `json:"data"` // base64
	MIME string `json:"mime"`
	Name string `json:"name"`
}

// Read returns the message of a body that was posted to an account. The error says which part of
// it is wrong. Attachments that it names by their addresses are fetched with f, later.
func Read(account string, body []byte, f *Fetcher) (channel.Update, error) {
	var in inbound
	if !utf8.Valid(body) {
		return channel.Update{}, errors.New("the body is not UTF-8")
	}
	if err := checkDepth(body); err != nil {
		return channel.Update{}, err
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return channel.Update{}, problem(err)
	}
	if in.Conversation.Kind == "" {
		in.Conversation.Kind = "dm"
	}
	if in.Conversation.ID == "" {
		in.Conversation.ID = in.From.ID
	}
	switch {
	case in.ID == "" || len(in.ID) > maxInboundID:
		return channel.Update{}, fmt.Errorf("id is required, the same for each repeat of the message, and has %d bytes at most", maxInboundID)
	case in.From.ID == "":
		return channel.Update{}, errors.New("from.id is required: who wrote the message")
	case in.Text == "" && len(in.Attachments) == 0:
		return channel.Update{}, errors.New("text is required")
	case !slices.Contains([]string{"dm", "group"}, in.Conversation.Kind):
		return channel.Update{}, errors.New("conversation.kind is dm or group")
	case len(in.Attachments) > maxAttached:
		return channel.Update{}, fmt.Errorf("%d attachments are the most", maxAttached)
	}
	u := channel.Update{
		Key:  key(account, in.Conversation.ID, in.ID),
		Kind: in.Conversation.Kind, SessionID: in.Conversation.ID, PeerID: in.From.ID, PeerName: in.From.Name,
		Thread: in.Thread, MessageID: in.ID, Text: in.Text, Mentioned: in.Mentioned,
	}
	for n, a := range in.Attachments {
		file, err := a.file(f)
		if err != nil {
			return channel.Update{}, fmt.Errorf("attachments[%d]%w", n, err)
		}
		u.Attachments = append(u.Attachments, file)
	}
	if r := in.ReplyTo; r != nil {
		u.ReplyTo = &channel.ReplyTo{ID: r.ID, Text: r.Text}
	}
	return u, nil
}

// file is an attachment of a message. The error begins with the field that is wrong.
func (a attached) file(f *Fetcher) (channel.Attachment, error) {
	out := channel.Attachment{MIME: a.MIME, Name: a.Name}
	switch {
	case a.URL == "" && a.Data == "":
		return out, errors.New(".url or .data is required")
	case a.URL != "" && a.Data != "":
		return out, errors.New(" has url and data, of which it can have one")
	case a.Data != "":
		data, err := base64.StdEncoding.DecodeString(a.Data)
		if err != nil {
			return out, errors.New(".data is not base64")
		}
		out.Data, out.Size = data, int64(len(data))
		return out, nil
	}
	u, err := fileURL(a.URL)
	if err != nil {
		return out, fmt.Errorf(".url %w", err)
	}
	if out.Name == "" {
		out.Name = path.Base(u.Path)
	}
	out.Open = func(ctx context.Context, limit int64) (io.ReadCloser, error) { return f.open(ctx, u, limit) }
	return out, nil
}

// key names a message. Ids may hold anything, and may be long: no two have one key.
func key(account, conversation, id string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(conversation), conversation, id))
	return "webhook:" + account + ":" + hex.EncodeToString(sum[:])
}

// checkDepth refuses JSON that is nested so deeply that reading it costs more than its bytes.
func checkDepth(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	for depth := 0; ; {
		t, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return problem(err)
		}
		if mark, ok := t.(json.Delim); ok {
			depth += map[bool]int{true: 1, false: -1}[mark == '{' || mark == '[']
		}
		if depth > maxDepth {
			return fmt.Errorf("the JSON is nested more than %d deep", maxDepth)
		}
	}
}

// problem is what is wrong with JSON, without its content.
func problem(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s, and wants a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("the body is not JSON (offset %d)", wrong.Offset)
	}
	return errors.New("the body is not a JSON object")
}
