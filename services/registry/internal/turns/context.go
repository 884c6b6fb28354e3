package turns

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// withIdentity adds the identity that the settings give the agent to its IDENTITY.md, which
// is the first of the files.
func withIdentity(set *agentdir.Agent, files []*registryv1.ContextFile) []*registryv1.ContextFile {
	i := set.Entry.Identity
	return config.AddIdentity(files, i.Name, i.Theme, i.Emoji)
}

func tupleText(t route.Tuple) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return string(b)
}

// context is what people wrote in the conversation of an account since the last reply and before the message, without
// starting a turn: the newest of it. It is the same when the turn begins again.
func (s *Service) context(ctx context.Context, r store.Ref, set *agentdir.Agent, o *store.Origin, b store.Begun) ([]thread.Event, error) {
	limit := set.Entry.GroupChat.HistoryLimit
	if o == nil || o.Account == "" || limit == 0 {
		return nil, nil
	}
	only, err := filter.Parse(thread.ContextFilter)
	if err != nil {
		return nil, err
	}
	after := epochFrom(b)
	for _, e := range b.Tail {
		if e.Source == thread.SourceSelf && e.ID < b.Inbound.ID {
			after = max(after, e.ID)
		}
	}
	p, err := s.Store.Read(ctx, r, store.Query{After: after, Upto: b.Inbound.ID, Filter: only, Tail: true, Limit: limit, MaxBytes: maxContext})
	return slices.DeleteFunc(p.Events, func(e thread.Event) bool { return e.Content == store.Erased }), s.Fault(r.Agent, r.Thread, err)
}

// maxContext is the most bytes of what people wrote before a message, of which each is at most 8 KiB.
const maxContext = 256 << 10

// delivery reports whether replies in a thread have a way out, and whether that
// way is a client that watches.
func delivery(set *agentdir.Agent, t route.Tuple, threadID string) (deliver, console bool) {
	switch {
	case t.Internal:
		return true, false
	case t.ChannelType == "console":
		return true, true
	}
	_, ok := set.Config.Via(threadID)
	return ok, false
}
