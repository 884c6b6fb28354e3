package thread

import (
	"encoding/json"
	"strconv"
)

// Apology is what a peer receives for a message that died, where on_error.notify_peer says so.
const Apology = "Sorry, I could not answer your message."

// Failure is the content of a record/error event that says why a message has no answer.
type Failure struct {
	Error   string `json:"error"`
	Context string `json:"context"`
	// Event is the message in the same thread; 0: not known.
	Event int64 `json:"event"`
	// Class of the failure in words.
	Class string `json:"class"`
	// Refused: the provider of the model refuses the message itself, whenever it is asked.
	Refused bool `json:"refused"`
}

// Content is the failure as an event holds it.
func (f Failure) Content() string {
	b := AppendString([]byte(`{"error":`), f.Error)
	b = AppendString(append(b, `,"context":`...), f.Context)
	if f.Event > 0 {
		b = strconv.AppendInt(append(b, `,"event":`...), f.Event, 10)
	}
	if f.Class != "" {
		b = AppendString(append(b, `,"class":`...), f.Class)
	}
	if f.Refused {
		b = append(b, `,"refused":true`...)
	}
	return string(append(b, '}'))
}

// ParseFailure reads the content of a record/error event; false when it is none of ours.
func ParseFailure(content string) (f Failure, ok bool) {
	ok = json.Unmarshal([]byte(content), &f) == nil && f.Error != ""
	return f, ok
}
