package turns

import (
	"context"
	"slices"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

const (
	// maxTranscripts and maxTranscriptBytes bound the transcripts of a prompt; the newest are read.
	maxTranscripts     = 200
	maxTranscriptBytes = 1 << 20
)

// transcripts are what was said in files of the messages of a claim, as the turns that had them made into text have
// recorded it. Most claims have no such file, and then nothing is read.
func (s *Service) transcripts(ctx context.Context, r store.Ref, b store.Begun) ([]thread.Event, error) {
	mayHave := func(e thread.Event) bool { return thread.MayHaveVoice(e.Content) }
	journaled := func(s store.Step) bool { return s.Kind == store.StepTranscript }
	if len(b.Tail) == 0 || !slices.ContainsFunc(b.Tail, mayHave) && !slices.ContainsFunc(b.Steps, journaled) {
		return nil, nil
	}
	only, err := filter.Parse(thread.TranscriptFilter)
	if err != nil {
		return nil, err
	}
	p, err := s.Store.Read(ctx, r, store.Query{After: b.Tail[0].ID, Filter: only, Tail: true, Limit: maxTranscripts, MaxBytes: maxTranscriptBytes})
	return p.Events, s.Fault(r.Agent, r.Thread, err)
}
