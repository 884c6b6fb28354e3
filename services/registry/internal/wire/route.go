package wire

import (
	"unicode/utf8"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
)

// ThreadOf routes an event under a mode. Another program may have written what
// PushEvents would have refused, and what no answer of ours could carry: such an
// event has no route, and so is dead at once.
func ThreadOf(e thread.Event, mode string) (string, error) {
	if !utf8.ValidString(e.Source) || !utf8.ValidString(e.Content) {
		return "", ErrNotText
	}
	if len(e.Content) > thread.MaxEvent {
		return "", TooLarge(e.Content)
	}
	m, err := route.ParseMode(mode)
	if err != nil {
		return "", err
	}
	t, _, err := route.Of(e.Source, e.Content)
	if err != nil {
		return "", err
	}
	return route.Thread(m, t), nil
}
