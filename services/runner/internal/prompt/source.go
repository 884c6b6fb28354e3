package prompt

import (
	"strings"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// Source contributes parts to prompts. It is asked for each request of a turn, and returns
// the same parts for the same scope.
type Source interface {
	// Parts are its parts, in their order. A part without a text leaves no trace.
	Parts(s *Scope) []Part
}

// Part is one named piece of a prompt.
type Part struct {
	Name string
	// Stable: the text is the same for every message of one peer in one conversation, until
	// a file, a setting or a digest changes. Stable parts come first, so that the cache of a
	// provider holds them.
	Stable bool
	Text   string
	// Why it is in the prompt.
	Why string

	// Role is system, but for messages. Build sets it, Tokens, and Cut of a part that has
	// lost its end.
	Role   model.Role
	Tokens int64
	Cut    bool

	message model.Message // of a message source
	id      int64         // of an event
	note    bool          // it stands for no event
}

// Sources make prompts. Their order is that of the parts, with the stable ones first and
// messages behind the system text.
type Sources []Source

// Standard are the sources of every prompt, and more of the system text behind them.
func Standard(more ...Source) Sources {
	list := Sources{files{}, digests{}, toolHints{}, conversation{}, owners{}, agents{}}
	list = append(list, more...)
	return append(list, history{}, heard{}, inbound{}, turn{})
}

// messages is a source of messages. Its parts give way to each other by their group.
type messages interface {
	Source
	group() group
}

// group says what has to go of messages when the window is too small.
type group int

const (
	oldest  group = iota // the oldest go
	end                  // the end is cut
	results              // the results of the oldest tools go
	groups
)

// files are those that the registry names, but for the memory.
type files struct{}

func (files) Parts(s *Scope) (parts []Part) {
	for _, f := range s.Files {
		if !ofMemory(f) {
			parts = append(parts, Part{Name: f.Name, Stable: true, Text: f.Content, Why: "a file of the agent"})
		}
	}
	return parts
}

// digests are the layers of the memory.
type digests struct{}

func (digests) Parts(s *Scope) (parts []Part) {
	for _, f := range s.Files {
		if text := strings.TrimSpace(f.Content); ofMemory(f) && text != "" {
			parts = append(parts, Part{Name: f.Name, Stable: true, Text: "## " + memoryTitle(f.Name) + "\n\n" + text, Why: "a digest of earlier messages"})
		}
	}
	return parts
}

func ofMemory(f File) bool { return strings.HasPrefix(f.Name, "memory/") }

type toolHints struct{}

func (toolHints) Parts(s *Scope) []Part {
	if len(s.Tools) == 0 {
		return nil
	}
	return []Part{{Name: "tools", Stable: true, Text: toolText(s), Why: "tools are offered"}}
}

type conversation struct{}

func (conversation) Parts(s *Scope) []Part {
	return []Part{{Name: "conversation", Stable: true, Text: peerText(s), Why: "the answer goes to a peer"}}
}

type owners struct{}

func (owners) Parts(s *Scope) []Part {
	if len(s.Owners) == 0 {
		return nil
	}
	return []Part{{Name: "owners", Stable: true, Text: ownersText(s), Why: "they may decide for the agent"}}
}

type agents struct{}

func (agents) Parts(s *Scope) []Part {
	return []Part{{Name: "agents", Stable: true, Text: othersText(s), Why: "work may be handed to them"}}
}
