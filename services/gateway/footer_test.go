package gateway_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S2-46, S3-103: with reply.usage_footer of the agent or of a session, the last part of a reply in a chat ends with what its
// turn has used: outside of a block of code, within the length of a message, the same when it is sent again. Answers to
// commands have no such line, and neither has the text of the reply in the conversation, in the prompts that follow, or
// for a program that waits for it.
func TestUsageFooter(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	n := 0
	ask := func(text string, parts int) []telegramtest.Message {
		t.Helper()
		before := len(said(api, bob.ID))
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
		awaitReplies(t, api, bob.ID, before+parts)
		n++
		h.Await(t, "admin", int64(n))
		return said(api, bob.ID)[before:]
	}
	tokens := regexp.MustCompile(`^hi\n\nUsage: [1-9][0-9]* tokens in, [1-9][0-9]* out$`)
	full := regexp.MustCompile(`\n\nUsage: [1-9][0-9]* tokens in, [1-9][0-9]* out, [0-9]+\.[0-9]{2} cents, offline/offline$`)
	if got := ask("say: hi", 1); got[0].Text != "hi" {
		t.Errorf("by default: %q", got[0].Text)
	}
	session := func(mode string) {
		t.Helper()
		if _, err := h.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{Key: "agent:admin:telegram:tg:dm:1207", UsageFooter: &mode}); err != nil {
			t.Fatal(err)
		}
	}
	session("tokens")
	if got := ask("say: hi", 1); !tokens.MatchString(got[0].Text) {
		t.Errorf("with tokens: %q", got[0].Text)
	}
	h.configure(t, "reply: {usage_footer: full}\nprice: {input_cents: 300, output_cents: 1500}")
	if got := ask("say: hi", 1); !tokens.MatchString(got[0].Text) {
		t.Errorf("with tokens for the conversation and full for the agent: %q", got[0].Text)
	}
	session("")
	api.Fail(telegramtest.Fault{Method: "sendMessage", Chat: bob.ID, Cut: telegramtest.CutAfter, Times: 1})
	if got := ask("say: hi", 2); !full.MatchString(got[0].Text) || got[0].Text != got[1].Text {
		t.Errorf("sent again: %q, %q", got[0].Text, got[1].Text)
	}
	got := ask("say: ```go\nx := 1", 1)[0]
	if !strings.HasPrefix(got.Text, "x := 1") || !full.MatchString(got.Text) {
		t.Errorf("behind code: %q", got.Text)
	}
	for _, e := range got.Entities {
		if e.Type == "pre" && e.Offset+e.Length > strings.Index(got.Text, "Usage") {
			t.Errorf("the line is in the block of code: %+v of %q", e, got.Text)
		}
	}
	h.set(t, "max_chars", "100")
	parts := ask("say: "+strings.Repeat("twenty characters. ", 12), 3)
	for i, m := range parts {
		if last := i == len(parts)-1; utf8.RuneCountInString(m.Text) > 100 || strings.Contains(m.Text, "Usage: ") != last {
			t.Errorf("part %d of %d: %q", i+1, len(parts), m.Text)
		}
	}
	session("off")
	if got := ask("say: last", 1); got[0].Text != "last" {
		t.Errorf("with off for the conversation: %q", got[0].Text)
	}

	const conversation = "threads/peers/tg-1207"
	page, err := h.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "admin", ThreadId: conversation}, Filter: "type = 'message' AND source = 'self'", Limit: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, e := range page.GetEvents() {
		var c struct {
			Text   string `json:"text"`
			Footer string `json:"usage_footer"`
		}
		if err := json.Unmarshal([]byte(e.GetContent()), &c); err != nil || strings.Contains(c.Text, "Usage: ") {
			t.Errorf("event %d: %s, %v", e.GetId(), e.GetContent(), err)
		}
		if c.Footer != "" {
			lines++
		}
	}
	if lines != 5 {
		t.Errorf("%d replies have a line, not 5", lines)
	}
	p, err := h.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "admin", ThreadId: conversation})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range p.GetParts() {
		if strings.Contains(part.GetText(), "tokens in") {
			t.Errorf("the prompt has it, in %s: %q", part.GetName(), part.GetText())
		}
	}
}

// A program that posts to an account gets the text of the agent alone, whatever reply.usage_footer says.
func TestNoUsageFooterForPrograms(t *testing.T) {
	sink := world.NewSink(t)
	h := open(t, world.Options{}, "  shop: {type: webhook, dm: open, secret: \"env:KEY\", allow_private: true, url: \""+sink.URL+"\"}\n")
	h.configure(t, "reply: {usage_footer: full}")
	body := message("1", "c7", "say: hello")
	if got := h.post(t, "/hooks/shop?wait=30s", body, signed(body)...); got.Reply != "hello" {
		t.Errorf("the answer: %+v", got)
	}
	h.Delivered(t, "admin", 1)
	if list := sink.Arrivals(""); len(list) != 1 || list[0].Text != "hello" {
		t.Errorf("posted: %+v", list)
	}
}
