package file

import (
	"slices"
	"sync"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxTurns is the number of turns whose files are remembered; the oldest is forgotten.
	maxTurns = 256
	// maxSeen is the number of files that are remembered of one turn. Of one that reads
	// more, all are forgotten and it starts again.
	maxSeen = 1024
)

// seen remembers the digests of the files that turns have read. The zero value is empty.
type seen struct {
	mu    sync.Mutex
	turns map[seenTurn]map[string]string // path -> digest
	order []seenTurn                     // oldest first
}

type seenTurn struct{ workdir, key string }

func seenBy(c toolset.Call) seenTurn { return seenTurn{c.Place.Config.GetWorkdir(), turn(c)} }

// add remembers that the turn of a call has read a file.
func (s *seen) add(c toolset.Call, path, digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := seenBy(c)
	if s.turns[by] == nil {
		if s.turns == nil {
			s.turns = map[seenTurn]map[string]string{}
		}
		if len(s.order) == maxTurns {
			delete(s.turns, s.order[0])
			s.order = slices.Delete(s.order, 0, 1)
		}
		s.turns[by], s.order = map[string]string{}, append(s.order, by)
	}
	if len(s.turns[by]) == maxSeen {
		clear(s.turns[by])
	}
	s.turns[by][path] = digest
}

// update follows a change that the turn itself has made to a file that it has read.
func (s *seen) update(c toolset.Call, path, digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if files := s.turns[seenBy(c)]; files[path] != "" {
		files[path] = digest
	}
}

// changed reports whether the turn has read a file with another content than this. A file
// that does not exist any more has nothing to lose.
func (s *seen) changed(c toolset.Call, path, digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.turns[seenBy(c)][path]
	return read != "" && digest != "" && read != digest
}
