package prompt

import (
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

// The short way to a text says what the long one says.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		`{"text":"hello"}`, `{"text":"a","reply_context":{"channel_type":"console","peer_id":"p"}}`, `{"text":"a","Text":"b"}`,
		`{"text":"a","attachments":[{"type":"x"}]}`, `{"text":"a\n"}`, `{"text":"a"`, `{"text":"a"}}`, `{"text":"a","\u0074ext":"b"}`,
		`{"text":"a","x":"text"}`, "{\"text\":\"\xff\"}", "{\"text\":\"\x01\"}", `{"text":""}`, `{"text":"a","te` + "\u017f" + `t":"b"}`, `{"text":"a" , "ATTACHMENTS":[{"url":"u"}]}`,
		`{"text":"a","reply_to":{"text":"b\nc"}}`, `{"text":"a","Reply_To":{"TEXT":"b"}}`, `{"text":"a","r\u0065ply_to":{"text":"b"}}`, `{"text":"a","reply_to":"b"}`, `{"text":"a","reply_to":{"text":1}}`,
		`{"answer_from":2,"text":"a\nb"}`, `{"text":"abc","answer_from":1}`, `{"text":"abc","ANSWER_from":1}`, `{"answer_from":-1,"text":"b"}`, `{"answer_from":"1","text":"b"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, _ := decoded(s, nil, false)
		if got := Text(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
		own, _ := decoded(s, nil, true)
		if got := Message(Event{Source: thread.SourceSelf, Content: s}).Text; got != own {
			t.Errorf("of the agent %q is %q, want %q", s, got, own)
		}
	})
}

func BenchmarkText(b *testing.B) {
	const content = `{"text":"a word and another","reply_context":{"channel_type":"bench","channel_id":"bench","peer_id":"p1"}}`
	b.ReportAllocs()
	for b.Loop() {
		Text(content)
	}
}
