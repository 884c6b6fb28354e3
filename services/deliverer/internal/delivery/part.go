package delivery

import (
	"fmt"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/chunk"
)

// part makes a target that of the next part, where the message has to go in parts: where it is
// longer than the settings or the platform of the channel want it. Another agent takes a message
// of any length.
func (w target) part(due Due) target {
	var limit channel.Limit
	if l, ok := w.channel.(channel.Limiter); ok {
		limit = l.Limit()
	}
	file := w.message.Document
	if w.name == channel.NameInternal || due.MaxChars == 0 && limit.Max == 0 && due.Parts == 0 && file == nil {
		return w
	}
	pieces := cut(w.message.Text, int(due.Reach), due.MaxChars, limit)
	if due.Parts == 0 && len(pieces) == 1 {
		w.message.Text = pieces[0].Text // the space around it does not count, so it must not be sent
	}
	switch {
	case due.Parts == 0 && file != nil && (len(pieces) == 0 || len(pieces) == 1 && limit.Length(pieces[0].Text) <= w.channel.(channel.Documenter).Documents().Caption):
		return w
	case due.Parts == 0 && file == nil && len(pieces) < 2:
		return w
	case len(pieces) == 0 && file != nil: // behind its text, a file is the last part
		w.message.Text, w.message.Part = "", due.Parts+1
		w.message.Key = fmt.Sprintf("%s:part:%d-file", due.Key, w.message.Part)
		return w
	case len(pieces) == 0: // all that can be seen was sent
		return target{outcome: Sent, name: w.name}
	}
	n, p := due.Parts+1, pieces[0]
	w.message.Text, w.message.Part, w.message.More, w.message.Document = p.Text, n, len(pieces) > 1 || file != nil, nil
	// Under another bound another part has another key, and is not taken for this one.
	w.message.Key = fmt.Sprintf("%s:part:%d-%d", due.Key, n, p.Reach)
	if w.message.More {
		due.Parts, due.Reach, due.Attempt, due.MaybeDuplicate = n, int64(p.Reach), 1, false
		w.rest = &due
	}
	return w
}

// cut returns the pieces of a text behind a place. The first one fits the limit also as it is
// rendered: a piece that becomes longer is cut at half of its length again.
func cut(text string, reach, maxChars int, limit channel.Limit) []chunk.Piece {
	b := chunk.Bounds{Max: limit.Max, Units: limit.Units}
	if maxChars > 0 && (limit.Max == 0 || maxChars < limit.Max) {
		b.Max = maxChars
	}
	pieces := chunk.From(text, reach, b)
	for limit.Size != nil && b.Max > chunk.Least && len(pieces) > 0 && limit.Size(pieces[0].Text) > limit.Max {
		b.Max /= 2
		pieces = chunk.From(text, reach, b)
	}
	return pieces
}
