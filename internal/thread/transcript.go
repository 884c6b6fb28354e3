package thread

import (
	"encoding/json"
	"strconv"
	"strings"
)

// MaxTranscript is the most bytes of the text of a [Transcript].
const MaxTranscript = 32 << 10

// Transcript is the content of a record/transcript event: what was said in a file of a message, as a program or a
// provider understood it.
type Transcript struct {
	// Event is the message in the same thread.
	Event int64 `json:"event"`
	// SHA256 of the file, in hex.
	SHA256 string `json:"sha256"`
	// Text is what was understood; empty: no words, or Error says why it is not known.
	Text  string `json:"text"`
	Error string `json:"error"`
}

// Content is the transcript as an event holds it.
func (t Transcript) Content() string {
	b := strconv.AppendInt([]byte(`{"event":`), t.Event, 10)
	b = AppendString(append(b, `,"sha256":`...), t.SHA256)
	b = AppendString(append(b, `,"text":`...), t.Text)
	if t.Error != "" {
		b = AppendString(append(b, `,"error":`...), t.Error)
	}
	return string(append(b, '}'))
}

// ParseTranscript reads the content of a record/transcript event; false when it is none of ours.
func ParseTranscript(content string) (t Transcript, ok bool) {
	ok = json.Unmarshal([]byte(content), &t) == nil && t.Event > 0 && t.SHA256 != ""
	return t, ok
}

// MayHaveVoice reports whether the content of a message may have a voice message or another file of sound whose data are
// stored. It decodes nothing: most messages have no file.
func MayHaveVoice(content string) bool {
	return strings.Contains(content, `"media":"sha256:`) && (strings.Contains(content, `"voice"`) || strings.Contains(content, `"audio"`))
}
