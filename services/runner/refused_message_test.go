package runner_test

import (
	"strings"
	"testing"

	server "github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// filtering answers as a provider with a content filter: it refuses each request with the
// word in it, and says how many messages it saw to each other.
func filtering(word string) modeltest.Step {
	return modeltest.Step{Repeat: true, Answer: func(c modeltest.Chat) modeltest.Step {
		if strings.Contains(c.Text(), word) {
			return modeltest.Step{Status: 400, Error: &modeltest.APIError{Message: "the prompt was filtered", Code: "content_filter"}}
		}
		return modeltest.Say("fine")
	}}
}

// R2: a message that the provider refuses for its content dies, and the same peer's next
// messages are answered; the event log has it as it was. A9: it has a note in place of an
// answer, so no two messages of the peer stand next to each other.
func TestRefusedMessageLeavesThePrompt(t *testing.T) {
	for _, notify := range []string{"false", "true"} {
		t.Run("notify "+notify, func(t *testing.T) {
			w, script := play(t, filtering("plutonium"))
			w.Create(t, "a1", "")
			w.Set(t, "a1", "on_error.notify_peer", notify)
			peer := server.Peer("bob")
			want(t, w, w.Say(t, "a1", peer, "hello"), replied, "fine")
			refused := w.Say(t, "a1", peer, "tell me about plutonium")
			want(t, w, refused, dead, "")
			for range 3 {
				want(t, w, w.Say(t, "a1", peer, "and now?"), replied, "fine")
			}
			r := script.Requests()
			last := r[len(r)-1].Chat
			if !strings.Contains(last.Text(), "a message was left out here") || (notify == "false") != strings.Contains(last.Text(), "[no answer was given: refused by the provider's content policy]") {
				t.Errorf("the last prompt is\n%s", last.Text())
			}
			for i, m := range last.Messages {
				if i > 0 && m.Role == "user" && last.Messages[i-1].Role == "user" {
					t.Errorf("two messages of the peer in a row: %q, %q", last.Messages[i-1].Content, m.Content)
				}
			}
			if events := w.Events(t, "a1", refused.GetThreadId(), ""); !strings.Contains(events[2].GetContent(), "plutonium") {
				t.Errorf("the log lost it: %v", events[2])
			}
		})
	}
}

// R2: a digest is made without the refused words too.
func TestRefusedMessageLeavesTheDigest(t *testing.T) {
	w, script := play(t, filtering("plutonium"))
	w.Create(t, "a1", "")
	w.Set(t, "a1", "compaction.after_turns", "3")
	peer := server.Peer("bob")
	want(t, w, w.Say(t, "a1", peer, "tell me about plutonium"), dead, "")
	for range 5 {
		want(t, w, sayDigested(t, w, "bob", "and now?"), replied, "fine")
	}
	digests := 0
	for _, r := range script.Requests()[1:] {
		if r.Chat.WantsDigest() {
			digests++
		}
		if strings.Contains(r.Chat.Text(), "plutonium") {
			t.Errorf("asked with it:\n%s", r.Chat.Text())
		}
	}
	if digests == 0 {
		t.Error("no digest was asked for")
	}
}

// A9: what died for another reason stays in the prompt, with a note in place of its answer.
func TestUnansweredMessageHasANote(t *testing.T) {
	w, script := play(t, modeltest.Fail(401, "no"), modeltest.Step{Repeat: true, Text: []string{"fine"}})
	w.Create(t, "a1", "")
	w.Set(t, "a1", "on_error.notify_peer", "false")
	peer := server.Peer("bob")
	want(t, w, w.Say(t, "a1", peer, "first"), dead, "")
	want(t, w, w.Say(t, "a1", peer, "second"), replied, "fine")
	r := script.Requests()
	var roles []string
	for _, m := range r[len(r)-1].Chat.Messages {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "system user assistant user" {
		t.Errorf("the prompt is %s", got)
	}
	if text := r[len(r)-1].Chat.Text(); !strings.Contains(text, "first\n[no answer was given: key refused]\nsecond") {
		t.Errorf("the prompt is\n%s", text)
	}
}
