package discord_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

// S3-52: a file arrives with its text, once, also when the answer was lost.
func TestDocument(t *testing.T) {
	s := server(t)
	c := sender(t, s)
	opened := 0
	m := channel.Message{Key: "k", Text: "the report", Document: channeltest.Document("report.pdf", "application/pdf", []byte("%PDF-1.7"), &opened), ReplyContext: to("20", "channel", ""), CreatedAt: time.Now().UTC().Format(time.RFC3339)}
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Acts: true})
	if _, err := c.Send(t.Context(), m); err == nil {
		t.Error("the answer was not lost")
	}
	m.MaybeDuplicate = true
	if _, err := c.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	list := s.Messages("20")
	var files []struct {
		Name string `json:"filename"`
		MIME string `json:"content_type"`
	}
	if len(list) != 1 || json.Unmarshal(list[0].Attachments, &files) != nil || len(files) != 1 || files[0].Name != "report.pdf" || files[0].MIME != "application/pdf" ||
		list[0].Content != "the report" || list[0].Notified || opened != 2 {
		t.Errorf("%+v %+v, read %d times", list, files, opened)
	}
}

// A message with another file, or with one where there should be none, is not taken for one that may have arrived.
func TestRepeatOfDocument(t *testing.T) {
	made := time.Now().Add(-3 * time.Minute)
	for name, c := range map[string]struct {
		text, files string
		document    *channel.Document
		sent        bool
	}{
		"its file":       {"", `[{"id":"1","filename":"the_report.pdf","size":8}]`, channeltest.Document("the report.pdf", "application/pdf", []byte("%PDF-1.7"), new(int)), false},
		"another file":   {"", `[{"id":"1","filename":"notes.txt","size":5}]`, channeltest.Document("report.pdf", "application/pdf", []byte("%PDF-1.7"), new(int)), true},
		"more files":     {"", `[{"id":"1","filename":"report.pdf","size":8},{"id":"2","filename":"b","size":1}]`, channeltest.Document("report.pdf", "application/pdf", []byte("%PDF-1.7"), new(int)), true},
		"without a file": {"done", `[]`, channeltest.Document("report.pdf", "application/pdf", []byte("%PDF-1.7"), new(int)), true},
		"with a file":    {"done", `[{"id":"1","filename":"report.pdf","size":8}]`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			s.Say(discordtest.Message{
				ChannelID: "20", Author: bot(), Content: c.text, Attachments: json.RawMessage(c.files), Timestamp: made.Add(time.Second).UTC().Format("2006-01-02T15:04:05.000000+00:00"),
			})
			m := channel.Message{
				Key: "k", Text: c.text, Document: c.document, MaybeDuplicate: true, ReplyContext: to("20", "channel", ""), CreatedAt: made.UTC().Format(time.RFC3339Nano),
			}
			if _, err := sender(t, s).Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if got := len(s.Messages("20")) == 2; got != c.sent {
				t.Errorf("sent: %v", got)
			}
		})
	}
}

// A file that the registry does not have will not come: its message is dead at once, and holds up no other.
func TestNoDocument(t *testing.T) {
	c := sender(t, server(t))
	gone := channel.Reject("MEDIA_NOT_FOUND", "the file of the message cannot be read", "")
	m := channel.Message{Key: "k", Text: "x", ReplyContext: to("20", "channel", ""), Document: &channel.Document{
		Name: "a.pdf", Size: 1, Open: func(context.Context) (io.ReadCloser, error) { return nil, gone },
	}}
	if _, err := c.Send(t.Context(), m); channel.AsError(err) != gone {
		t.Errorf("%#v", err)
	}
}
