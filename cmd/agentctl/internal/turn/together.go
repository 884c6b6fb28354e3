package turn

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Member is a message that joined the turn of another one.
type Member struct {
	RunID   string `json:"run_id"`
	InboxID int64  `json:"inbox_id"`
}

// JoinedOf are the messages that joined at a step.
func JoinedOf(s *registry.Step) []Member {
	var j struct {
		Messages []struct {
			Key     string `json:"key"`
			InboxID int64  `json:"inbox_id"`
		} `json:"messages"`
	}
	if s.GetKind() != registry.StepKind_STEP_KIND_STEER || json.Unmarshal(s.GetResult(), &j) != nil {
		return nil
	}
	out := make([]Member, 0, len(j.Messages))
	for _, m := range j.Messages {
		out = append(out, Member{m.Key, m.InboxID})
	}
	return out
}

// joined says which messages joined at a step.
func joined(s *registry.Step) string {
	list := JoinedOf(s)
	if len(list) == 1 {
		return fmt.Sprintf("message %d joined", list[0].InboxID)
	}
	ids := make([]string, 0, len(list))
	for _, m := range list {
		ids = append(ids, strconv.FormatInt(m.InboxID, 10))
	}
	return "messages " + strings.Join(ids, ", ") + " joined"
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// nameOf names the message of a run.
func nameOf(run string) string {
	if id, ok := thread.KeyID(run); ok {
		return fmt.Sprintf("message %d", id)
	}
	return "another message"
}

// SentMessages counts the messages that a turn has sent to its peer before its end.
func SentMessages(t *registry.Turn) (n int) {
	for _, s := range t.GetSteps() {
		var r struct {
			Sent  bool   `json:"sent"`
			Break string `json:"break"`
		}
		if json.Unmarshal(s.GetResult(), &r) == nil && (r.Sent || r.Break == "text_end" || s.GetKind() == registry.StepKind_STEP_KIND_BLOCK) {
			n++
		}
	}
	return n
}
