package cluster

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
)

// maxParsed is the most settings whose parsed form is shared.
const maxParsed = 1024

// plainID matches ids that YAML reads as a plain string.
var plainID = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)+$`)

// judge parses settings. Most agents are created by a program: their files differ only in
// the name, above which there are at most comments, and such a file is parsed once, however
// many there are.
func (s *Files) judge(id string, data []byte, defaults string) (*agentdir.Agent, error) {
	lines, rest := 0, data
	for bytes.HasPrefix(rest, []byte("#")) {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
		lines++
	}
	rest, named := bytes.CutPrefix(rest, []byte("agent_id: "+id+"\n"))
	if !named || !plainID.MatchString(id) {
		return s.home.Judge(id, data)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d\n%s", defaults, lines, rest))
	s.mu.Lock()
	like := s.parsed[key]
	s.mu.Unlock()
	if like == nil {
		set, err := s.home.Judge(id, data)
		if err == nil && set.Config.Inbox.Path == "" { // else where it is hangs on the name
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.parsed) >= maxParsed {
				clear(s.parsed)
			}
			s.parsed[key] = set
		}
		return set, err
	}
	dir, err := s.home.Agent(id)
	if err != nil {
		return nil, err
	}
	set := *like
	set.Dir, set.Config.AgentID, set.Values, set.Files.Config = dir, id, slices.Clone(like.Values), data
	for i, v := range set.Values {
		if v.Key == "agent_id" {
			set.Values[i].Value = id
		}
	}
	return &set, nil
}
