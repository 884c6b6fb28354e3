package slack_test

import (
	"errors"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// S3-52: a file arrives with its text as the comment. Until the last of its requests nothing is seen, and no send in
// doubt.
func TestDocument(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	opened := 0
	m := message("C100", "the **report**")
	m.Document = channeltest.Document("report.pdf", "application/pdf", []byte("%PDF-1.7"), &opened)
	if _, err := c.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	list := s.Messages("C100")
	got := list[len(list)-1]
	if len(got.Files) != 1 || got.Files[0].Name != "report.pdf" || string(got.Files[0].Content) != "%PDF-1.7" || got.Text != "the *report*" || opened != 1 {
		t.Errorf("%+v, read %d times", got, opened)
	}
	for method, inDoubt := range map[string]bool{"files.getUploadURLExternal": false, "files.completeUploadExternal": true} {
		s.Fail(slacktest.Fault{Method: method, Cut: slacktest.CutAfter})
		_, err := c.Send(t.Context(), m)
		if e, ok := errors.AsType[*channel.Error](err); !ok || e.Class != channel.Unavailable || e.InDoubt != inDoubt {
			t.Errorf("%s cut: %+v", method, err)
		}
	}
}
