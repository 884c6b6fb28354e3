package turns

import (
	"context"
	"encoding/json"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/thread"
)

// apologyPause is the least time between two apologies to a peer that nobody has set: it
// also ends an exchange with another program that answers each of them.
const apologyPause = 10 * time.Minute

// recentAnswers is how many messages of the agent are searched for an apology. With more
// answers since, the next failure is news.
const recentAnswers = 20

// notifiesPeer reports whether a peer is notified that its message died.
func notifiesPeer(set config.Switch, t route.Tuple) bool {
	if set == config.Auto {
		return !t.Internal && source.IsChat(t.ChannelType, t.SessionType)
	}
	return set == config.On
}

// apology is the content of the event with which a message dies; none without a text, and
// where the peer had one just now.
func (s *Service) apology(ctx context.Context, r store.Ref, set config.Switch, text string, rc json.RawMessage) (string, error) {
	if text == "" {
		return "", nil
	}
	if set == config.Auto {
		if again, err := s.apologized(ctx, r, rc); err != nil || again {
			return "", err
		}
	}
	return replyContent(text, rc, nil), nil
}

// apologized reports whether the peer of a reply context got an apology in a thread less
// than apologyPause ago.
func (s *Service) apologized(ctx context.Context, r store.Ref, rc json.RawMessage) (bool, error) {
	own, err := filter.Parse("source = '" + thread.SourceSelf + "' AND type = '" + thread.TypeMessage + "'")
	if err != nil {
		return false, err
	}
	page, err := s.Store.Read(ctx, r, store.Query{Limit: recentAnswers, Tail: true, Filter: own})
	if err != nil {
		return false, s.Fault(r.Agent, r.Thread, err)
	}
	return hasApology(page.Events, rc, time.Now().Add(-apologyPause)), nil
}

// hasApology reports whether one of the events is an apology to the peer of rc after a time.
func hasApology(events []thread.Event, rc json.RawMessage, after time.Time) bool {
	var to channel.ReplyContext
	if json.Unmarshal(rc, &to) != nil {
		return false
	}
	for _, e := range events {
		at := thread.ParseStamp(e.CreatedAt)
		if !at.After(after) || at.After(after.Add(apologyPause+machine.ClockStep)) {
			continue
		}
		c, err := channel.ParseContent(json.RawMessage(e.Content))
		if was := c.ReplyContext; err == nil && c.Text == thread.Apology && was.PeerID() == to.PeerID() && was.SessionID() == to.SessionID() {
			return true
		}
	}
	return false
}
