package slack

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/history"
)

// pageSize is how many messages an answer has.
const pageSize = 200

// statedTypes are the platform's words for kinds.
var statedTypes = map[string]string{kindDM: "im", kindGroup: "mpim", kindChannel: "channel"}

// List implements [history.Platform].
func (r *reader) List(ctx context.Context, p history.Position, cursor string, limit int) (page []history.Message, next string, err error) {
	method, params := "conversations.history", url.Values{"channel": {p.Conversation}, "oldest": {p.ID}, "limit": {strconv.Itoa(limit)}}
	if p.Thread != "" {
		method = "conversations.replies"
		params.Set("ts", p.Thread)
	}
	if cursor != "" {
		params.Set("cursor", cursor)
	}
	var a struct {
		Messages []struct {
			message
			LatestReply string `json:"latest_reply"` // in the thread that it began
		} `json:"messages"`
		Next struct {
			Cursor string `json:"next_cursor"`
		} `json:"response_metadata"`
	}
	if err := r.client.read(ctx, r.token, method, params, &a); err != nil {
		return nil, "", err
	}
	for _, m := range a.Messages {
		if m.TS == p.Thread {
			r.begun(ctx, p.Conversation, &m.message)
		}
		page = append(page, history.Message{ID: m.TS, LastReply: m.LatestReply, Update: func(ctx context.Context) (channel.Update, bool) {
			m.Edited = nil // it is taken as it is now: its first text is not known
			return r.readMessage(ctx, &m.message, p.Conversation, statedTypes[p.Kind], r.who.Team)
		}})
	}
	return page, a.Next.Cursor, nil
}

// Refused implements [history.Platform].
func (r *reader) Refused(err error) (lasting bool, retryAfter time.Duration) {
	answer, ok := errors.AsType[*refusal](err)
	if !ok {
		return false, 0
	}
	return answer.code == "missing_scope" || r.client.down(answer).Class == channel.Rejected, answer.retryAfter
}
