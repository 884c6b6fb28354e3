package turns

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/route"
)

// A record/decision event of a message records why the first one of a thread was routed
// there, where the settings differ from the default, and that a message got no reply (S0-80).
// Package memory writes those of digests. An event repeats no text of anybody, costs no
// transaction of its own, and is in no prompt; the journal holds the rest, for explain.

// opened records the first message of a thread; empty where the path of the thread suffices.
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

// silent records a message that got no reply.
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
