package step

import (
	"encoding/json"
	"fmt"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// SteerKey is the key of the messages that are merged before a round's call.
func SteerKey(round int) string { return fmt.Sprintf("steer:%d", round) }

// SteerOfCall is the key of the message that answered a call.
func SteerOfCall(key string) string { return "steer:" + key }

// Steered are the messages of a steer step; none without one.
func Steered(s *registrypb.Step) ([]prompt.Event, error) {
	if s == nil {
		return nil, nil
	}
	var j struct {
		Messages []struct {
			EventID int64  `json:"event_id"`
			Source  string `json:"source"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(s.GetResult(), &j); err != nil {
		return nil, fmt.Errorf("decode steer step: %w", err)
	}
	var out []prompt.Event
	for _, m := range j.Messages {
		out = append(out, prompt.Event{ID: m.EventID, Source: m.Source, Content: m.Content})
	}
	return out, nil
}

// Fallback is what is said when the model says nothing after a tool that failed
// (S1-56); empty when none did, or when a tool has spoken to the peer.
func (l *Log) Fallback() string {
	if len(l.order) == 0 || len(l.Sent()) > 0 {
		return ""
	}
	last := l.tools[l.order[len(l.order)-1]]
	if why := toolset.Failure(last.GetResult()); why != "" {
		return "I have no answer: " + last.GetName() + " failed, " + Clip(why, 300) + "."
	}
	return ""
}
