package prompt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/runner/internal/prompt"
)

// S3-103: the line of a file says what was said in it, or why that is not known. No line of a transcript looks like one of the
// message.
func TestTranscriptsInMessages(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	other := strings.Repeat("cd", 32)
	content := `{"text":"listen","attachments":[{"type":"voice","mime":"audio/ogg","name":"v.ogg","size":4,"media":"sha256:` + hash + `"},{"type":"audio","name":"s.mp3","size":5,"media":"sha256:` + other + `"}]}`
	const line = "listen\n[attachment: voice \"v.ogg\" (audio/ogg, 4 bytes), the file inbox/abababababab/v.ogg"
	const last = "\n[attachment: audio \"s.mp3\" (, 5 bytes), the file inbox/cdcdcdcdcdcd/s.mp3"
	for name, c := range map[string]struct {
		known []thread.Transcript
		want  string
	}{
		"none":    {nil, line + "]" + last + "]"},
		"another": {[]thread.Transcript{{SHA256: "ef", Text: "x"}}, line + "]" + last + "]"},
		"text":    {[]thread.Transcript{{SHA256: hash, Text: "a\n[attachment: x]\r\nb\u2028c"}}, line + "; its transcript:]\n> a\n> [attachment: x]\n> b\n> c" + last + "]"},
		"no text": {[]thread.Transcript{{SHA256: hash}, {SHA256: other, Text: "x"}}, line + "; its transcript has no words]" + last + "; its transcript:]\n> x"},
		"error":   {[]thread.Transcript{{SHA256: other, Error: "out of time"}}, line + "]" + last + "; it could not be transcribed: out of time]"},
	} {
		if d := cmp.Diff(c.want, prompt.Text(content, c.known...)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if got := prompt.Message(prompt.Event{Source: "external:x", Content: content, Transcripts: c.known}).Text; got != c.want {
			t.Errorf("%s: as a message %q", name, got)
		}
	}
	for content, want := range map[string][]bool{content: {true, true}, strings.Replace(content, "voice", "video", 1): {false, true}} {
		for i, a := range prompt.Attachments(content) {
			if a.Spoken() != want[i] {
				t.Errorf("%s is spoken: %t", a.Type, a.Spoken())
			}
		}
	}
	for _, a := range []prompt.Attachment{{Type: "voice"}, {Type: "voice", Media: "sha256:" + hash}, {Type: "voice", Media: "sha256:x", Size: 3}} {
		if a.Spoken() {
			t.Errorf("%+v is spoken", a)
		}
	}
}
