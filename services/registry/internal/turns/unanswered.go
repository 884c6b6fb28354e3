package turns

import (
	"context"
	"strings"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxUnanswered is how many of the messages of a prompt may have failed.
const maxUnanswered = 200

// unanswered are the messages of a tail that died, as the records behind them say. Most
// tails have none, and then nothing is read: a message that died has no answer behind it, or
// the apology.
func (s *Service) unanswered(ctx context.Context, r store.Ref, tail []thread.Event) (out []*registryv1.Unanswered, err error) {
	if !mayLackAnswers(tail) {
		return nil, nil
	}
	first, last := tail[0].ID, tail[len(tail)-1].ID
	only, err := filter.Parse("subtype = '" + thread.SubtypeError + "'")
	if err != nil {
		return nil, err
	}
	page, err := s.Store.Read(ctx, r, store.Query{After: first, Upto: last - 1, Limit: maxUnanswered, Tail: true, Filter: only})
	if err != nil {
		return nil, s.Fault(r.Agent, r.Thread, err)
	}
	for _, e := range page.Events {
		if f, ok := thread.ParseFailure(e.Content); ok && e.Source == thread.SourceSelf && f.Event >= first && f.Event < last {
			out = append(out, &registryv1.Unanswered{EventId: f.Event, Class: f.Class, Refused: f.Refused})
		}
	}
	return out, nil
}

// mayLackAnswers reports whether a message before the last one may have died.
func mayLackAnswers(tail []thread.Event) bool {
	for i := 1; i < len(tail); i++ {
		switch own := tail[i].Source == thread.SourceSelf; {
		case own && strings.HasPrefix(tail[i].Content, `{"text":"`+thread.Apology):
			return true
		case !own && tail[i-1].Source != thread.SourceSelf:
			return true
		}
	}
	return false
}
