package thread_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/thread"
)

// What a transcript writes is read back, and nothing else is one.
func FuzzTranscript(f *testing.F) {
	f.Add(int64(3), "ab", "Call me\nback", "")
	f.Add(int64(1), "cd", "", "out of \"time\"")
	f.Fuzz(func(t *testing.T, event int64, sha256, text, why string) {
		in := thread.Transcript{Event: event, SHA256: sha256, Text: text, Error: why}
		out, ok := thread.ParseTranscript(in.Content())
		if ok != (event > 0 && sha256 != "") {
			t.Fatalf("%+v is read: %t", in, ok)
		}
		if valid := utf8.ValidString(sha256 + text + why); ok && valid && out != in {
			t.Errorf("%+v is read as %+v", in, out)
		}
	})
}

func TestOtherContentIsNoTranscript(t *testing.T) {
	for _, content := range []string{"", "[erased]", "{}", `{"event":0,"sha256":"a"}`, `{"event":1}`, `{"event":"1","sha256":"a"}`} {
		if got, ok := thread.ParseTranscript(content); ok {
			t.Errorf("%q is %+v", content, got)
		}
	}
}

func TestMayHaveVoice(t *testing.T) {
	file := `{"text":"","attachments":[{"type":"voice","media":"sha256:` + strings.Repeat("a", 64) + `"}]}`
	for content, want := range map[string]bool{
		file: true, strings.Replace(file, "voice", "audio", 1): true, strings.Replace(file, "voice", "image", 1): false,
		`{"text":"a \"voice\" message"}`: false, strings.Replace(file, "media", "url", 1): false, "": false,
	} {
		if got := thread.MayHaveVoice(content); got != want {
			t.Errorf("%s: %t", content, got)
		}
	}
}
