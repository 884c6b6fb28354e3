package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/routing"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// maxContext is the most bytes of a message that starts no turn; the rest of its text is cut.
const maxContext = 8 << 10

// errContext reports that the message is not addressed to the agent.
var errContext = errors.New("the message is not addressed to the agent")

// errLate reports that the message is older than channels.ACCOUNT.catchup.
var errLate = errors.New("the message came too late to be answered")

func notAddressed(a layer.Account) error {
	return fault.New(codes.PermissionDenied, fault.NotAddressed, "the message is not addressed to '"+a.Name+"'", "mention it, or set channels."+a.Name+".groups.mode: always")
}

var (
	links = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)|<[^<>|]*\|([^<>]*)>|<[^<>]*>`) // of Markdown and Slack, and tags
	marks = strings.NewReplacer("*", "", "~", "", "`", "", "||", "")
	edges = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[^\pL\pN_])_+|_+($|[^\pL\pN_])`) }) // marks, but no part of a word
)

// mentions reports whether one of the patterns of an agent is in a text, whose markup does not count.
func mentions(text string, patterns []string) bool {
	if len(patterns) == 0 {
		return false
	}
	text = strings.TrimSpace(edges().ReplaceAllString(marks.Replace(links.ReplaceAllString(text, "$1$2")), "$1$2"))
	for _, p := range patterns {
		if r, err := regexp.Compile("(?i:" + p + ")"); err == nil && r.MatchString(text) {
			return true
		}
	}
	return false
}

// note stores a message as context of a conversation: the next turn there reads it.
func (s *Service) note(ctx context.Context, a *state.Agent, set *agentdir.Agent, at routing.Stored, in inbound) (routing.Stored, error) {
	if len(in.m.GetPeerId()) > maxPeer || len(in.m.GetSessionId()) > maxPeer {
		return at, notAddressed(in.account) // no platform has such ids, and they do not fit
	}
	content := in.context()
	tuple, _, err := route.Of(in.from.String(), content)
	if err != nil {
		return at, err
	}
	about, err := json.Marshal(tuple)
	if err != nil {
		return at, err
	}
	subtype := thread.SubtypeContext
	e := store.NewEvent{Source: in.from.String(), Type: thread.TypeRecord, Subtype: &subtype, Content: content}
	out, why := s.Inbox.Note(ctx, a, set, at.Thread, string(about), e, store.AppendOptions{Key: in.m.GetKey(), PartKeys: in.m.GetPartKeys(), Reader: in.reader})
	if errors.Is(why, store.ErrKeyReused) { // by a delivery with another name or text
		var found bool
		if out, found, err = s.Router.Pushed(ctx, store.Ref{Agent: a.ID, Thread: at.Thread}, in.m.GetKey()); err != nil {
			return at, err
		} else if found {
			why = nil
		}
	}
	at.Appended = out
	return at, why
}

// noteEdit stores the later version of a message as context of the conversation that has the message.
func (s *Service) noteEdit(ctx context.Context, a *state.Agent, set *agentdir.Agent, d routing.Decision, in inbound) (routing.Stored, error) {
	original, found, err := s.Router.Pushed(ctx, store.Inbox(a.ID), in.m.GetEditOf())
	if err != nil {
		return routing.Stored{}, err
	}
	at := routing.In(a.ID, original)
	if !found {
		at = routing.Stored{Agent: a.ID, Key: d.Key, Thread: d.Thread}
		if _, found, err = s.Router.Pushed(ctx, store.Ref{Agent: a.ID, Thread: d.Thread}, in.m.GetEditOf()); err != nil {
			return at, err
		}
	}
	if !found || at.Thread == "" {
		return at, fault.New(codes.PermissionDenied, fault.NotAddressed, "the message that was edited is not stored", "send a new message")
	}
	return s.note(ctx, a, set, at, in)
}

// context is the content of a message that starts no turn.
func (in inbound) context() string {
	m := in.m
	c := struct {
		ID        string `json:"id,omitempty"`
		ChannelID string `json:"channel_id"`
		PeerID    string `json:"peer_id"`
		PeerName  string `json:"peer_name,omitempty"`
		SessionID string `json:"session_id"`
		Text      string `json:"text"`
		CreatedAt string `json:"created_at"`
		SentAt    string `json:"sent_at,omitempty"`
		Edited    bool   `json:"edited,omitempty"`
	}{
		ID: m.GetMessageId(), ChannelID: in.account.Name, PeerID: m.GetPeerId(), PeerName: in.name, SessionID: m.GetSessionId(), Text: in.text,
		CreatedAt: thread.Stamp(in.sentAt), SentAt: in.given, Edited: m.GetEditOf() != "",
	}
	for keep := maxContext; ; keep /= 2 { // escapes make a text longer
		if len(c.Text) > keep {
			c.Text = cut(in.text, keep) + fmt.Sprintf("\n[the message had %d characters; the rest was cut]", utf8.RuneCountInString(in.text))
		}
		if content := encode(c); len(content) <= maxContext || keep == 0 {
			return content
		}
	}
}

// cut is the longest beginning of a valid text that has at most so many bytes.
func cut(s string, most int) string {
	n := min(most, len(s))
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and booleans: it cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}
