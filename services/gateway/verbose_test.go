package gateway_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S4-40, S1-48, S1-53: with /verbose the calls of tools precede a reply in a chat: with arguments and results for an
// owner in a direct chat, by name and outcome for everyone else. /status shows the modes, and no prompt has the lines.
func TestVerboseInChats(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, fmt.Sprintf("dm: open, groups: {allow: ['*'], mode: always}}\nowners: [\"telegram:%d\"]\nreply: {blocks: on", bob.ID))
	group := telegramtest.Chat{ID: -100200, Type: "group", Title: "G"}
	took := regexp.MustCompile(` in [0-9.]+m?s`)
	ask := func(u telegramtest.User, chat telegramtest.Chat, text string) []string {
		t.Helper()
		before := len(replies(api, chat.ID))
		api.Say(telegramtest.Message{Chat: chat, From: &u, Text: text})
		got := awaitReplies(t, api, chat.ID, before+1)[before:]
		for n := range got {
			got[n] = took.ReplaceAllString(got[n], "")
		}
		return got
	}
	bobs, anns := telegramtest.Private(bob), telegramtest.Private(ann)
	const note, says = " Arguments and results are shown to owners, in direct conversations.", "offline: the command answered:\n"
	for _, c := range []struct {
		u    telegramtest.User
		chat telegramtest.Chat
		text string
		want string
	}{
		{bob, bobs, "run: echo one", says + "one"},
		{bob, bobs, "/verbose on", "Verbose: on."},
		{bob, bobs, "run: echo two", "exec echo two: ok\n\n" + says + "two"},
		{bob, bobs, "/verbose full", "Verbose: full."},
		{bob, bobs, "/reasoning block", "Reasoning: block."},
		{bob, bobs, "run: echo three", "exec echo three: ok\n\nthree\n\n" + says + "three"},
		{bob, bobs, "say: nothing ran", "nothing ran"},
		{bob, bobs, "/verbose loud", `Verbose is "loud": write one of off, on, full, or nothing for what the settings say.`},
		{ann, anns, "/verbose full", "Verbose: full." + note},
		{ann, anns, "run: echo four", "exec: ok\n\n" + says + "four"},
		{ann, group, "/verbose full", "Verbose: full." + note},
		{bob, group, "run: echo five", "exec: ok\n\n" + says + "five"},
	} {
		if got := ask(c.u, c.chat, c.text); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s to %s: %q, want %q", c.u.FirstName, c.text, got, c.want)
		}
	}
	if got := ask(bob, bobs, "/status"); !strings.HasSuffix(got[0], ", verbose full, reasoning block") {
		t.Errorf("the status: %q", got)
	}
	settled(t, api)
	p, err := h.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "admin", ThreadId: "threads/peers/tg-1207"})
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, part := range p.GetParts() {
		if part.GetRole() == "assistant" {
			own = append(own, part.GetText())
		}
	}
	if want := []string{says + "one", says + "two", says + "three"}; !slices.Equal(own, want) {
		t.Errorf("the next prompt has %q of the agent, want %q", own, want)
	}
}
