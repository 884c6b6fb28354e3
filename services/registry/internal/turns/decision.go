package turns

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/route"
)

// What record/decision events say of a message: why the first
// one of a thread led there, when the settings say something else than usual, and that
// one was answered by saying nothing (S0-80). Those of digests are package memory's. An
// event repeats no word of anybody. The events cost no transaction
// of their own, and no prompt shows them; the rest is in the journal, for explain.

// opened tells of the first message of a thread; empty where its path says it all.
func opened(threadID, mode string, inboxID int64) string {
	if route.Mode(mode) == route.PerPeer {
		return ""
	}
	return decisionText(struct {
		Decision string `json:"decision"`
		Thread   string `json:"thread"`
		Mode     string `json:"mode"`
		Inbox    int64  `json:"inbox_id"`
	}{"route", threadID, mode, inboxID})
}

// silent tells of a message that was answered by saying nothing.
func silent(inboxID int64) string {
	return decisionText(struct {
		Decision string `json:"decision"`
		Why      string `json:"why"`
		Inbox    int64  `json:"inbox_id"`
	}{"skip", "silent", inboxID})
}

func decisionText(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers always encode
		return "{}"
	}
	return string(b)
}
