package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/theclaw/agents/internal/source"
)

// Pusher appends an event to an agent's inbox. A repeat with the same key
// returns the id of the event it made the first time. It returns an *[Error]
// where it can tell: a registry that is away or an inbox that is full is
// Unavailable (with RetryAfter), an agent that does not exist is Rejected. An
// error it did not classify counts an attempt.
type Pusher interface {
	Push(ctx context.Context, agentID, source, eventType, content, idempotencyKey string) (eventID int64, err error)
}

// Inbox is the channel named internal: it answers another agent by a push into
// that agent's inbox.
type Inbox struct{ pusher Pusher }

// NewInbox returns the internal channel over p.
func NewInbox(p Pusher) *Inbox { return &Inbox{pusher: p} }

// Name returns internal.
func (*Inbox) Name() string { return NameInternal }

// Guarantee returns [Keyed]: the delivery key is the push's idempotency key.
func (*Inbox) Guarantee() Guarantee { return Keyed }

// Destination returns the receiving agent, so that one full inbox blocks no other.
func (*Inbox) Destination(m Message) string { return m.ReplyContext.SourceAgentID() }

// inboxContent is the content of an event one agent sends another.
type inboxContent struct {
	Text         string       `json:"text"`
	ReplyContext ReplyContext `json:"reply_context"`
	Hops         int          `json:"hops"`
	InReplyTo    string       `json:"in_reply_to"`
}

// Send pushes m into the inbox of reply_context.source_agent_id.
func (c *Inbox) Send(ctx context.Context, m Message) (Receipt, error) {
	to, err := m.ReplyContext.Need("source_agent_id")
	if err != nil {
		return Receipt{}, err
	}
	hops := m.ReplyContext.Hops() + 1
	if hops > MaxHops {
		return Receipt{}, Reject(ReasonHopLimit,
			fmt.Sprintf("the message has passed %d agents, which is the limit", MaxHops), "end the conversation in one of the agents' instructions")
	}
	content, err := encode(inboxContent{
		Text:         m.Text,
		ReplyContext: returnContext(m.ReplyContext, m.AgentID, hops),
		Hops:         hops,
		InReplyTo:    m.Key,
	})
	if err != nil {
		return Receipt{}, &Error{Class: Rejected, Reason: ReasonReplyContext, BeforeSend: true, What: "reply_context cannot be encoded", Err: err}
	}
	id, err := c.pusher.Push(ctx, to[0], source.Agent(m.AgentID).String(), "message", string(content), m.Key)
	if err != nil {
		return Receipt{}, AsError(fmt.Errorf("push event: %w", err))
	}
	return Receipt{ProviderID: fmt.Sprintf("%s/%d", to[0], id)}, nil
}

// returnContext is the way back to me. The one this message followed leads to
// its receiver, who would answer himself with it; so everything that addresses
// is replaced and only the keys unknown to us travel on.
func returnContext(rc ReplyContext, me string, hops int) ReplyContext {
	back := maps.Clone(rc)
	for key, value := range map[string]string{
		"channel_type": NameInternal, "channel_id": NameInternal, "peer_id": me,
		"session_id": "default", "source_agent_id": me,
	} {
		quoted, _ := json.Marshal(value) // a string always encodes
		back[key] = quoted
	}
	back["hops"] = json.RawMessage(strconv.Itoa(hops))
	return back
}

// encode is json.Marshal without the escaping meant for HTML pages.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
