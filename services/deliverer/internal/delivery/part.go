package delivery

import (
	"fmt"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/chunk"
)

// part makes a target that of the next part, where the message has to go in parts.
// Another agent takes a message of any length.
func (w target) part(due Due) target {
	if w.name == channel.NameInternal || due.MaxChars == 0 && due.Parts == 0 {
		return w
	}
	pieces := chunk.From(w.message.Text, int(due.Reach), chunk.Bounds{Max: due.MaxChars})
	switch {
	case due.Parts == 0 && len(pieces) < 2:
		return w
	case len(pieces) == 0: // all that can be seen was sent
		return target{outcome: Sent, name: w.name}
	}
	n, p := due.Parts+1, pieces[0]
	w.message.Text, w.message.Part, w.message.More = p.Text, n, len(pieces) > 1
	// Under another bound another part has another key, and is not taken for this one.
	w.message.Key = fmt.Sprintf("%s:part:%d-%d", due.Key, n, p.Reach)
	if w.message.More {
		due.Parts, due.Reach, due.Attempt, due.MaybeDuplicate = n, int64(p.Reach), 1, false
		w.rest = &due
	}
	return w
}
