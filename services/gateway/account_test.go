package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// set changes a key of the account tg, and waits until it receives again.
func (h *site) set(t *testing.T, key, value string) {
	t.Helper()
	before := h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"channels", "tg", key}, Value: value}); err != nil {
		t.Fatal(err)
	}
	for {
		if now := h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP); now.GetSince().AsTime().After(before.GetSince().AsTime()) {
			return
		}
	}
}

// said are the messages of the bot in a chat.
func said(api *telegramtest.Server, chat int64) []telegramtest.Message {
	return slices.DeleteFunc(api.Messages(chat), func(m telegramtest.Message) bool { return m.From == nil || !m.From.IsBot })
}

// S2-46: a reply goes in parts of max_chars, and its parts name the message that they answer as reply_to says: none in a
// direct chat unless it is set, the first part, each part. A change is in force with the next message.
func TestTelegramParts(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, max_chars: 64")
	text := strings.TrimSpace(strings.Repeat("word ", 30)) // 149 characters
	n := 0
	ask := func(parts int) (list []telegramtest.Message, asked int64) {
		t.Helper()
		_, asked = api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: " + text})
		awaitReplies(t, api, bob.ID, n+parts)
		list = said(api, bob.ID)[n:]
		n += parts
		return list, asked
	}
	list, _ := ask(3)
	for _, m := range list {
		if len(m.Text) > 64 || m.ReplyTo != 0 {
			t.Errorf("%d characters, answers %d: %q", len(m.Text), m.ReplyTo, m.Text)
		}
	}
	h.set(t, "reply_to", "first")
	if list, asked := ask(3); list[0].ReplyTo != asked || list[1].ReplyTo != 0 || list[2].ReplyTo != 0 {
		t.Errorf("first: %+v", list)
	}
	h.set(t, "reply_to", "all")
	if list, asked := ask(3); list[0].ReplyTo != asked || list[1].ReplyTo != asked || list[2].ReplyTo != asked {
		t.Errorf("all: %+v", list)
	}
	h.set(t, "max_chars", "149")
	if list, asked := ask(1); list[0].Text != text || list[0].ReplyTo != asked {
		t.Errorf("as long as the bound: %+v", list)
	}
	h.set(t, "max_chars", "148")
	ask(2)
}

// S2-103, S2-19: beyond the rate of an account messages and commands are refused, with one notice to the conversation; a program that posts
// learns when it may post again.
func TestAccountRate(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, rate: 1}\n  free: {type: webhook, dm: open, rate: 1")
	for n := range 6 {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprintf("say: %d", n)})
	}
	for range 2 { // not answered, and with no other notice
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "/usage"})
	}
	awaitReplies(t, api, bob.ID, 3)
	settled(t, api)
	h.Await(t, "admin", 2)
	got := replies(api, bob.ID)
	if len(got) != 3 || !slices.Contains(got, "0") || !slices.Contains(got, "1") {
		t.Errorf("%q", got)
	}
	if i := slices.IndexFunc(got, func(s string) bool { return strings.Contains(s, "more than 1 messages a minute were sent to 'tg'") }); i < 0 {
		t.Errorf("no notice: %q", got)
	}
	for n := range 3 {
		a := h.post(t, "/hooks/free", []byte(fmt.Sprintf(`{"id":"o-%d","from":{"id":"c7"},"text":"hello"}`, n)))
		if n < 2 && (a.Status != 202 || !a.Accepted) || n == 2 && (a.Status != 429 || a.Reason != "QUOTA_EXCEEDED" || a.Retry == "" || a.Retry == "0") {
			t.Errorf("post %d: %d %s", n, a.Status, a.raw)
		}
	}
	if n := h.stored(t); n != 4 {
		t.Errorf("%d are stored, not 4", n)
	}
}

// S2-17: an agent that takes no more messages today holds up no conversation until it does: what it does not take is
// refused with a notice.
func TestAgentWithoutQuota(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.configure(t, "quota: {messages_per_day: 1}")
	for range 3 {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: yes"})
	}
	settled(t, api)
	want := "This message was not taken in: the messages of agent 'admin' for today are used up: 1. Please send it again later."
	if got := awaitReplies(t, api, bob.ID, 2); len(got) != 2 || !slices.Contains(got, "yes") || !slices.Contains(got, want) {
		t.Errorf("%q", got)
	}
}

// S2-103: a notice that a command is for owners keeps back none of messages that are lost; of each a conversation gets one in
// a while.
func TestNoticeOfEachReason(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.configure(t, "queue: {cap: 1, drop: new}")
	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	forbidden := func() {
		t.Helper()
		say("/approve ap-1")
		say("/pair ABCDEFGH")
		settled(t, api)
	}
	forbidden()
	say("slow: 3000")
	for range 3 {
		say("say: beyond the queue")
	}
	forbidden()
	if got, want := replies(api, bob.ID), []string{"only an owner may use /approve.", "1 of your messages wait for their answers already."}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// S2-46: an attachment of media_max_mib is taken, a larger one is named with its size and the limit, to the person and to
// the agent; with 0 none is fetched.
func TestAccountMedia(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, media_max_mib: 1")
	n := 0
	send := func(name string, size int) []string {
		t.Helper()
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: got it", Files: []telegramtest.File{{Kind: "document", Name: name, MIME: "text/plain", Content: []byte(strings.Repeat("x", size))}}})
		got := awaitText(t, api, bob.ID, n, "got it")
		if !strings.Contains(got.Text, name) {
			t.Errorf("the agent does not know of %s: %q", name, got.Text)
		}
		settled(t, api)
		all := replies(api, bob.ID)
		defer func() { n = len(all) }()
		return all[n:]
	}
	stored := func(name string) bool {
		list, err := filepath.Glob(filepath.Join(h.Home, "agents/admin/workdir/inbox/*", name))
		return err == nil && len(list) == 1
	}
	if got := send("fits.txt", 1<<20); len(got) != 1 || !stored("fits.txt") {
		t.Errorf("a file of the limit: %q", got)
	}
	want := "long.txt: it has 1048577 bytes; channels.tg.media_max_mib is 1"
	if got := send("long.txt", 1<<20+1); !slices.Contains(got, "Not received: "+want+".") || stored("long.txt") {
		t.Errorf("a larger one: %q", got)
	}
	h.set(t, "media_max_mib", "0")
	if got := send("small.txt", 1); !slices.Contains(got, "Not received: small.txt: it has 1 bytes; channels.tg.media_max_mib is 0.") || stored("small.txt") {
		t.Errorf("with 0: %q", got)
	}
	h.set(t, "media_max_mib", "2")
	if got := send("later.txt", 1<<20+1); len(got) != 1 || !stored("later.txt") {
		t.Errorf("with a larger limit: %q", got)
	}
}

// S2-17: what was written more than catchup before the account receives again starts no turn.
func TestAccountCatchUp(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.Stop()
	day := time.Now().Add(-24 * time.Hour)
	for text, at := range map[string]time.Time{"say: too old": day.Add(-time.Minute), "say: old": day.Add(time.Hour)} {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text, Date: at.Unix()})
	}
	h = telegram(t, api, world.Options{Home: h.Home}, "dm: open")
	awaitReplies(t, api, bob.ID, 1)
	settled(t, api)
	if got := replies(api, bob.ID); !slices.Equal(got, []string{"old"}) || h.stored(t) != 1 {
		t.Errorf("%q, %d stored", got, h.stored(t))
	}
}

// S2-15: what waits for an approval is shown where tools.approval_notify says: in the chat of the message if an owner
// wrote it, else to the owners, or nowhere.
func TestApprovalNotify(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, fmt.Sprintf("dm: open, groups: {allow: ['*'], mode: always}}\nowners: [\"telegram:%d\"]\ntools: {approval_notify: origin", bob.ID))
	h.configure(t, "sandbox: {mode: \"off\"}\napprovals: ask")
	group := telegramtest.Chat{ID: -100200, Type: "group", Title: "G"}
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: hello"})
	awaitReplies(t, api, bob.ID, 1)
	// ask makes a person ask for a command in the group, and returns what denies it once it waits.
	ask := func(u telegramtest.User, file string) (deny func()) {
		t.Helper()
		var id string
		api.Say(telegramtest.Message{Chat: group, From: &u, Text: "run: touch " + file})
		for end := time.Now().Add(30 * time.Second); ; {
			r, err := h.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{State: registryv1.ApprovalState_APPROVAL_STATE_PENDING})
			if err != nil || time.Now().After(end) {
				t.Fatal(r, err)
			}
			if len(r.GetApprovals()) == 1 {
				id = r.GetApprovals()[0].GetApprovalId()
				break
			}
		}
		before := len(replies(api, group.ID))
		return func() {
			t.Helper()
			if _, err := h.Approvals.ResolveApproval(t.Context(), &registryv1.ResolveApprovalRequest{ApprovalId: id, Decision: registryv1.ApprovalDecision_APPROVAL_DECISION_DENY}); err != nil {
				t.Fatal(err)
			}
			awaitReplies(t, api, group.ID, before+1)
		}
	}
	asked := func(chat int64, file string) bool {
		return slices.ContainsFunc(replies(api, chat), func(s string) bool { return strings.Contains(s, "touch "+file) && strings.Contains(s, "/approve") })
	}
	done := ask(bob, "one")
	if m := awaitText(t, api, group.ID, 0, "touch one"); len(m.Buttons) < 2 || asked(bob.ID, "one") {
		t.Errorf("of an owner in a group: %+v, and directly %q", m, replies(api, bob.ID))
	}
	done()
	done = ask(ann, "two")
	if awaitText(t, api, bob.ID, 0, "touch two"); asked(group.ID, "two") {
		t.Errorf("of a person who is no owner, in the group: %q", replies(api, group.ID))
	}
	done()
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"tools", "approval_notify"}, Value: "none"}); err != nil {
		t.Fatal(err)
	}
	done = ask(bob, "three")
	done()
	if asked(bob.ID, "three") || asked(group.ID, "three") {
		t.Errorf("with none: %q, %q", replies(api, bob.ID), replies(api, group.ID))
	}
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"tools", "approval_notify"}, Value: "owners"}); err != nil {
		t.Fatal(err)
	}
	done = ask(bob, "four")
	if awaitText(t, api, bob.ID, 0, "touch four"); asked(group.ID, "four") {
		t.Errorf("with owners, in the group: %q", replies(api, group.ID))
	}
	done()
}

// S2-43: the prompt of a direct conversation has exactly as many earlier messages of the person as the settings
// say, those of the person before those of the account; what leaves it is in the digest.
func TestAccountHistory(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, dm_history_limit: 2")
	h.configure(t, "compaction: {strategy: truncate}") // the offline model makes no digest
	const conversation = "threads/peers/tg-1207"
	shown := func() (out []string) {
		t.Helper()
		p, err := h.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "admin", ThreadId: conversation})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range p.GetParts() {
			if part.GetRole() == "user" && strings.HasPrefix(part.GetText(), "say: ") {
				out = append(out, part.GetText())
			}
		}
		return out
	}
	for n := range 6 {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprintf("say: %d", n)})
		awaitReplies(t, api, bob.ID, n+1)
	}
	h.Await(t, "admin", 6)
	if got := shown(); !slices.Equal(got, []string{"say: 3", "say: 4", "say: 5"}) {
		t.Errorf("with 2: %q", got)
	}
	h.set(t, "dms", `{"1207": {history_limit: 4}}`)
	if got := shown(); !slices.Equal(got, []string{"say: 1", "say: 2", "say: 3", "say: 4", "say: 5"}) {
		t.Errorf("with 4 of the person: %q", got)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		m, err := h.Turns.GetMemory(t.Context(), &registryv1.GetMemoryRequest{AgentId: "admin", ThreadId: conversation})
		if err != nil || time.Now().After(end) {
			t.Fatal(m, err)
		}
		if slices.ContainsFunc(m.GetMemory(), func(s *registryv1.MemoryState) bool {
			return s.GetLayer() == registryv1.MemoryLayer_MEMORY_LAYER_THREAD && s.GetDigestedId() > 0
		}) {
			return
		}
	}
}

// S2-43: with as many earlier messages of the person as an account states, the prompt of a turn has exactly so many,
// although context.recent_messages is 20, and that of a person has its own number; without a number it has 20 messages.
func TestAccountHistoryTurns(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, dms: {\"31\": {history_limit: 100}}, rate: 0")
	h.configure(t, "outbound: []") // a chat takes one reply a second
	const answered = 103
	people := []telegramtest.User{bob, ann}
	said := 0
	say := func(n int) {
		t.Helper()
		for range n {
			for _, u := range people {
				api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: fmt.Sprintf("say: %d", said)})
			}
			said++
		}
		settled(t, api)
		for n := len(people) * (said - n); n < len(people)*said; n++ {
			h.Await(t, "admin", int64(n+1))
		}
	}
	// asked are the messages of the person in the prompt of the last turn, the one that it answers with them. A process
	// writes it when its turn has ended.
	asked := func(peer int64) (n int, first string) {
		t.Helper()
		file := filepath.Join(h.Home, "agents/admin/sessions", fmt.Sprintf("threads%%2Fpeers%%2Ftg-%d.jsonl", peer))
		last := fmt.Sprintf("say: %d", said-1)
		var list []string
		backendtest.Await(t, file+" with "+last+" at its end", func() bool {
			data, _ := os.ReadFile(file) // none yet
			list = regexp.MustCompile(`say: \d+`).FindAllString(string(data), -1)
			return len(list) > 0 && list[len(list)-1] == last
		})
		return len(list), list[0]
	}
	for said < answered {
		say(min(10, answered-said)) // more are more than a queue takes
	}
	if n, first := asked(ann.ID); n != 101 || first != "say: 2" {
		t.Errorf("with 100 of the person: %d, from %q", n, first)
	}
	if n, first := asked(bob.ID); n != 11 || first != "say: 92" {
		t.Errorf("without a number: %d, from %q", n, first)
	}
	h.set(t, "dm_history_limit", "50")
	say(1)
	if n, first := asked(ann.ID); n != 101 || first != "say: 3" {
		t.Errorf("with 100 of the person and 50 of the account: %d, from %q", n, first)
	}
	if n, first := asked(bob.ID); n != 51 || first != "say: 53" {
		t.Errorf("with 50 of the account: %d, from %q", n, first)
	}
}

// S4-56: the prompt of an owner's message names the owners; that of a guest, directly or in a group, says that the
// message is from none, without their ids.
func TestOwnersInPrompt(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, fmt.Sprintf("dm: open, groups: {allow: ['*'], mode: always}}\nowners: [\"telegram:%d\", \"slack:U7\"]\nqueue: {mode: followup", bob.ID))
	group := telegramtest.Chat{ID: -100200, Type: "group", Title: "G"}
	n := int64(0)
	section := func(u telegramtest.User, chat telegramtest.Chat) (text string) {
		t.Helper()
		n++
		api.Say(telegramtest.Message{Chat: chat, From: &u, Text: "say: hello"})
		settled(t, api)
		turn := h.Await(t, "admin", n)
		p, err := h.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "admin", ThreadId: turn.GetThreadId()})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range p.GetParts() {
			if part.GetName() == "owners" {
				text = part.GetText()
			} else if strings.Contains(part.GetText(), "U7") {
				t.Errorf("part %s: %q", part.GetName(), part.GetText())
			}
		}
		return text
	}
	for _, c := range []struct {
		u     telegramtest.User
		chat  telegramtest.Chat
		owner bool
	}{
		{bob, telegramtest.Private(bob), true},
		{ann, telegramtest.Private(ann), false},
		{bob, group, true},
		{ann, group, false},
	} {
		got := section(c.u, c.chat)
		if want := "Their ids are `slack:U7`, `telegram:1207`; everyone else is a guest."; strings.HasSuffix(got, want) != c.owner || got == "" {
			t.Errorf("%s in chat %d: %q", c.u.FirstName, c.chat.ID, got)
		}
		if !c.owner && (strings.Contains(got, "1207") || !strings.Contains(got, "not from one of them")) {
			t.Errorf("%s in chat %d: %q", c.u.FirstName, c.chat.ID, got)
		}
	}
}
