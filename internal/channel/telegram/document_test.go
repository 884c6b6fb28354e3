package telegram_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

var png = append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 64)...)

// S3-52: a file arrives with its text below it, a picture as one, or as a document where the platform refuses to show it.
func TestDocument(t *testing.T) {
	s, c := open(t)
	if d := c.(channel.Documenter).Documents(); d.Max != 50<<20 || d.Caption != 1024 {
		t.Errorf("%+v", d)
	}
	for _, f := range []struct {
		name, mime, text, method string
		content                  []byte
		opened                   int
		to                       channel.ReplyContext
	}{
		{"report \"q\".pdf", "application/pdf", "The **report**", "sendDocument", []byte("%PDF-1.7"), 1, to(1207, "dm")},
		{"a.png", "image/png", "", "sendPhoto", png, 1, to(-10042, "group", "platform_thread", "7", "reply_to_id", "5502")},
		{"b.png", "image/png", "", "sendDocument", []byte("no picture"), 2, to(1207, "dm")}, // refused as a photo
		{"c.gif", "image/gif", "", "sendDocument", []byte("GIF89a"), 1, to(1207, "dm")},
	} {
		opened := 0
		receipt, err := c.Send(t.Context(), channel.Message{Key: "k", Text: f.text, Document: channeltest.Document(f.name, f.mime, f.content, &opened), ReplyContext: f.to})
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		calls := s.Calls("")
		call := calls[len(calls)-1]
		list := s.Messages(call.Chat)
		got := list[len(list)-1]
		if call.Method != f.method || opened != f.opened || receipt.ProviderID == "" || len(got.Files) != 1 ||
			got.Files[0].Name != strings.ReplaceAll(f.name, `\`, "") || string(got.Files[0].Content) != string(f.content) || got.Files[0].MIME != f.mime {
			t.Errorf("%s: %+v, read %d times", f.name, call, opened)
		}
		if f.text != "" && (got.Text != "The report" || len(got.Entities) != 1) || f.to.PlatformThread() != "" && (got.Thread != 7 || got.ReplyTo != 5502) {
			t.Errorf("%s: %+v", f.name, got)
		}
	}
	s.Fail(telegramtest.Fault{Method: "sendDocument", Status: http.StatusTooManyRequests, RetryAfter: 3})
	opened := 0
	_, err := c.Send(t.Context(), channel.Message{Key: "k", Document: channeltest.Document("a", "text/plain", []byte("x"), &opened), ReplyContext: to(1207, "dm")})
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Class != channel.Unavailable || e.InDoubt || e.RetryAfter.Seconds() != 3 {
		t.Errorf("%v", err)
	}
}
