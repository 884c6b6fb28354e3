package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

var bob, ann = telegramtest.User{ID: 1207, FirstName: "Bob"}, telegramtest.User{ID: 31, FirstName: "Ann"}

// botAPI starts a Bot API.
func botAPI(t *testing.T) *telegramtest.Server {
	t.Helper()
	api, err := telegramtest.Start(telegramtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

// telegram starts a world with the account tg, whose entry has further keys.
func telegram(t *testing.T, api *telegramtest.Server, o world.Options, keys string) *site {
	t.Helper()
	h := open(t, o, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, %s}\n", api.URL(), keys))
	h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	return h
}

// replies are the texts that the bot has sent to a chat.
func replies(api *telegramtest.Server, chat int64) (out []string) {
	for _, m := range api.Messages(chat) {
		if m.From != nil && m.From.IsBot {
			out = append(out, m.Text)
		}
	}
	return out
}

// awaitReplies waits until the bot has sent so many messages to a chat.
func awaitReplies(t *testing.T, api *telegramtest.Server, chat int64, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.Wait(ctx, func() bool { return len(replies(api, chat)) >= n }); err != nil {
		t.Fatalf("%v: %q", err, replies(api, chat))
	}
	return replies(api, chat)
}

// settled waits until the platform was told that all updates arrived.
func settled(t *testing.T, api *telegramtest.Server) telegramtest.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.Wait(ctx, func() bool { s := api.Stats(); return s.Acked == s.Updates }); err != nil {
		t.Fatalf("%v: %+v", err, api.Stats())
	}
	return api.Stats()
}

// S2-17: messages of a chat are answered in their order while other chats go on, and what was
// delivered before a restart of all services is not answered again.
func TestTelegram(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		api := botAPI(t)
		h := telegram(t, api, o, "dm: open")
		const chats, messages = 8, 4
		slow := telegramtest.User{ID: 3000, FirstName: "P"}
		for n := range messages {
			for c := range chats {
				u := telegramtest.User{ID: int64(2000 + c), FirstName: "P"}
				api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: fmt.Sprintf("say: %d", n)})
			}
		}
		for c := range chats {
			got := awaitReplies(t, api, int64(2000+c), messages)
			for n, text := range got {
				if text != fmt.Sprint(n) {
					t.Fatalf("chat %d: %q", c, got)
				}
			}
		}
		if s := settled(t, api); s.Lost != 0 || s.Repeated != 0 {
			t.Errorf("%+v", s)
		}
		if n := h.stored(t); n != chats*messages {
			t.Errorf("%d are stored", n)
		}
		if c := h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetIn() != chats*messages || c.GetLag() == nil || c.GetWhat() != "@demo_bot, lease gateway" {
			t.Errorf("%v", c)
		}
		api.Say(telegramtest.Message{Chat: telegramtest.Private(slow), From: &slow, Text: "slow: 1"})
		awaitReplies(t, api, slow.ID, 1)
		if typing := api.Calls("sendChatAction"); len(typing) == 0 {
			t.Error("nothing showed that an answer was written")
		}
		if o.DSN != "" {
			return
		}
		h.Stop()
		u := telegramtest.User{ID: 2000, FirstName: "P"}
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: "say: later"})
		api.Repeat(10) // and ten of those before, once more
		h = telegram(t, api, world.Options{Home: h.Home}, "dm: open")
		if got := awaitReplies(t, api, 2000, messages+1); got[messages] != "later" {
			t.Errorf("%q", got)
		}
		settled(t, api)
		if n := h.stored(t); n != chats*messages+2 {
			t.Errorf("after a restart %d are stored", n)
		}
	})
}

// S2-17: while a message is not on disk its platform gets no acknowledgement, however often it
// is asked for updates.
func TestTelegramNotStoredYet(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	store := make(chan struct{})
	release := sync.OnceFunc(func() { close(store) })
	fault.SetPoint(func(label string) {
		if label == "T0.before" {
			<-store
		}
	})
	defer fault.SetPoint(nil)
	defer release()
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: hello"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	polls := api.Stats().Polls
	if err := api.Wait(ctx, func() bool { s := api.Stats(); return s.Acked > 0 || s.Returned == 1 && s.Polls > polls+2 }); err != nil {
		t.Fatal(err)
	}
	if s := api.Stats(); s.Acked != 0 {
		t.Errorf("%d messages were acknowledged that are not on disk", s.Acked)
	}
	release()
	if got := awaitReplies(t, api, bob.ID, 1); got[0] != "hello" {
		t.Errorf("%q", got)
	}
	settled(t, api)
	if n := h.stored(t); n != 1 {
		t.Errorf("%d are stored", n)
	}
}

// S2-18, example 3: a stranger gets a code, once, and nothing reaches an agent; whom the owner
// approves may write.
func TestTelegramPairing(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: pairing")
	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	say("a text of a stranger")
	got := awaitReplies(t, api, bob.ID, 1)
	_, code, ok := strings.Cut(got[0], "Code: ")
	if code, _, _ = strings.Cut(code, " "); !ok || len(code) != 8 {
		t.Fatalf("%q", got)
	}
	say("another text of a stranger")
	settled(t, api)
	if n, list := h.stored(t), replies(api, bob.ID); n != 0 || len(list) != 1 {
		t.Errorf("%d are stored; %q", n, list)
	}
	approve := &registryv1.ResolvePairingRequest{Code: code, Decision: registryv1.PairingDecision_PAIRING_DECISION_APPROVE, Wait: durationpb.New(10 * time.Second)}
	r, err := h.Channels.ResolvePairing(t.Context(), approve)
	if err != nil || r.GetPairing().GetNotice() != registryv1.PairingNotice_PAIRING_NOTICE_SENT {
		t.Fatal(r, err)
	}
	if got := replies(api, bob.ID); len(got) != 2 || !strings.HasPrefix(got[1], "You may write to this assistant now.") {
		t.Errorf("%q", got)
	}
	say("say: hello")
	if got := awaitReplies(t, api, bob.ID, 3); got[2] != "hello" {
		t.Errorf("%q", got)
	}
	grep(t, h.Home, "text of a stranger") // I22
}

// Example 3 of the gateway: a person who is approved while the account does not receive is notified when it does, once,
// also over a restart of the services; an owner who approves in a chat reads whether the person was, and the same when
// the command is repeated.
func TestTelegramApproved(t *testing.T) {
	api := botAPI(t)
	config := fmt.Sprintf("dm: pairing}\nowners: [\"telegram:%d\"]\ncommands: {enabled: true", ann.ID)
	h := telegram(t, api, world.Options{}, config)
	say := func(u telegramtest.User, text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: text})
	}
	ask := func(u telegramtest.User) (code string) {
		t.Helper()
		n := len(replies(api, u.ID))
		say(u, "hi")
		_, code, _ = strings.Cut(awaitReplies(t, api, u.ID, n+1)[n], "Code: ")
		code, _, _ = strings.Cut(code, " ")
		return code
	}
	const welcome = "You may write to this assistant now."
	code := ask(bob)
	say(ann, "/pair "+code)
	if got := awaitReplies(t, api, ann.ID, 1); got[0] != "Bob (telegram:1207) may write to tg - notified." {
		t.Errorf("%q", got)
	}
	say(ann, "/pair "+code)
	if got := awaitReplies(t, api, ann.ID, 2); got[1] != "Bob (telegram:1207) was already approved and may write to tg - notified." {
		t.Errorf("%q", got)
	}
	eve := telegramtest.User{ID: 77, FirstName: "Eve"}
	code = ask(eve)
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"channels", "tg", "enabled"}, Value: "false"}); err != nil {
		t.Fatal(err)
	}
	h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_OFF)
	r, err := h.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Code: code, Decision: registryv1.PairingDecision_PAIRING_DECISION_APPROVE})
	if err != nil || r.GetPairing().GetNotice() != registryv1.PairingNotice_PAIRING_NOTICE_WAITING || len(replies(api, eve.ID)) != 1 {
		t.Errorf("%v, %v: %q", r, err, replies(api, eve.ID))
	}
	h.Stop()
	h = telegram(t, api, world.Options{Home: h.Home}, config)
	if got := awaitReplies(t, api, eve.ID, 2); !strings.HasPrefix(got[1], welcome) {
		t.Errorf("%q", got)
	}
	say(eve, "say: hello")
	if got := awaitReplies(t, api, eve.ID, 3); got[2] != "hello" {
		t.Errorf("%q", got)
	}
	h.Stop()
	telegram(t, api, world.Options{Home: h.Home}, config)
	say(eve, "say: again")
	if got := awaitReplies(t, api, eve.ID, 4); got[3] != "again" {
		t.Errorf("%q", got)
	}
	if got := replies(api, bob.ID); len(got) != 2 || !strings.HasPrefix(got[1], welcome) {
		t.Errorf("%q", got)
	}
}

// A person who is blocked before the notice could be sent does not get it when the platform works again.
func TestTelegramBlockedBeforeNotice(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: pairing")
	approve := func(id int64) {
		t.Helper()
		u := telegramtest.User{ID: id, FirstName: "Eve"}
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: "hi"})
		awaitReplies(t, api, id, 1) // the code
		if id == 77 {
			api.Fail(telegramtest.Fault{Method: "sendMessage", Chat: id, Status: 500, Times: -1})
		}
		resolvePeer(t, h, id, registryv1.PairingDecision_PAIRING_DECISION_APPROVE, 0)
	}
	approve(77)
	failed := func() (n int) {
		for _, c := range api.Calls("sendMessage") {
			if c.Chat == 77 && c.Status == 500 {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.Wait(ctx, func() bool { return failed() >= 3 }); err != nil { // then it is left for later
		t.Fatalf("%v: %d calls", err, failed())
	}
	resolvePeer(t, h, 77, registryv1.PairingDecision_PAIRING_DECISION_BLOCK, 0)
	api.Heal()
	approve(78) // the gateway goes over all, in the order of their ids
	if got := awaitReplies(t, api, 78, 2); !strings.HasPrefix(got[1], "You may write to this assistant now.") {
		t.Errorf("%q", got)
	}
	if got := replies(api, 77); len(got) != 1 {
		t.Errorf("a person who is blocked was sent %q", got)
	}
}

// resolvePeer decides about a person, and waits for the notice where wait says so.
func resolvePeer(t *testing.T, h *site, id int64, d registryv1.PairingDecision, wait time.Duration) registryv1.PairingNotice {
	t.Helper()
	r, err := h.Channels.ResolvePairing(t.Context(), &registryv1.ResolvePairingRequest{Account: "tg", PeerId: fmt.Sprint(id), Decision: d, Wait: durationpb.New(wait)})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetPairing().GetNotice()
}

// A person whom one gateway has notified is not notified by the other one that takes the account over.
func TestTelegramApprovedTwoGateways(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		api := botAPI(t)
		o.Gateways = 2
		if o.DSN != "" {
			o.Registries = 2
		}
		h := open(t, o, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: pairing}\n", api.URL()))
		approved := func(id int64) {
			t.Helper()
			u := telegramtest.User{ID: id, FirstName: "Bob"}
			api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: "hi"})
			awaitReplies(t, api, id, 1) // the code
			// Else the message may come again at the next gateway, to which the person is no stranger any more.
			if err := api.Wait(t.Context(), func() bool { s := api.Stats(); return s.Acked == s.Updates }); err != nil {
				t.Fatal(err)
			}
			notice := resolvePeer(t, h, id, registryv1.PairingDecision_PAIRING_DECISION_APPROVE, 10*time.Second)
			if got := replies(api, id); notice != registryv1.PairingNotice_PAIRING_NOTICE_SENT || len(got) != 2 || !strings.HasPrefix(got[1], "You may write to this assistant now.") {
				t.Errorf("%v: %q", notice, got)
			}
		}
		approved(77)
		first := receiving(t, h)
		h.Gateways[first].Stop()
		seen(t, h.Gateways[1-first], "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		approved(78) // the gateway goes over all, in the order of their ids
		if got := replies(api, 77); len(got) != 2 {
			t.Errorf("notified again: %q", got)
		}
	})
}

// grep fails when a file below a directory has a text.
func grep(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), text) {
			t.Errorf("%s holds %q", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// An album is one message with its files, in the order of the chat; what is too large is named in
// the chat and to the agent.
func TestTelegramFiles(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	chat := telegramtest.Private(bob)
	api.Say(telegramtest.Message{Chat: chat, From: &bob, Text: "say: first"})
	api.Say(telegramtest.Message{Chat: chat, From: &bob, Text: "say: album", Album: "a1", Files: []telegramtest.File{{Kind: "document", Name: "one.txt", MIME: "text/plain", Content: []byte("one")}}})
	api.Say(telegramtest.Message{Chat: chat, From: &bob, Album: "a1", Files: []telegramtest.File{{Kind: "document", Name: "two.txt", MIME: "text/plain", Content: []byte("two")}}})
	api.Say(telegramtest.Message{Chat: chat, From: &bob, Text: "say: last"})
	if got := awaitReplies(t, api, bob.ID, 3); len(got) != 3 || got[0] != "first" || !strings.HasPrefix(got[1], "album") || got[2] != "last" {
		t.Fatalf("%q", got)
	}
	if n := h.stored(t); n != 3 {
		t.Errorf("%d are stored, not 3", n)
	}
	for _, text := range []string{"one", "two"} {
		list, err := filepath.Glob(filepath.Join(h.Home, "agents/admin/workdir/inbox/*", text+".txt"))
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if b, err := os.ReadFile(list[0]); err != nil || string(b) != text {
			t.Errorf("%q %v", b, err)
		}
	}
	api.Say(telegramtest.Message{Chat: chat, From: &bob, Text: "say: film", Files: []telegramtest.File{{Kind: "video", Name: "film.mp4", MIME: "video/mp4", Size: 30 << 20, Content: []byte("x")}}})
	got := awaitReplies(t, api, bob.ID, 5)
	if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "Not received: film.mp4: ") }); i < 3 {
		t.Errorf("%q", got)
	}
}

// Telegram sends what it knows of no answer to again. Parts of an album that came too late for its message are messages
// of their own, and are not lost when they come again together with it; what was stored is not stored twice, whichever
// parts come again. A part that is edited is found.
func TestTelegramAlbumAgain(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		api := botAPI(t)
		h := telegram(t, api, o, "dm: open")
		part := func(name string) (message int64) {
			_, message = api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: " + name, Album: "a1", Files: []telegramtest.File{{Kind: "document", Name: name + ".txt", MIME: "text/plain", Content: []byte(name)}}})
			return message
		}
		replied := func(want ...string) {
			t.Helper()
			got := awaitReplies(t, api, bob.ID, len(want))
			if !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("%q, not %q", got, want)
			}
		}
		repeat := func(n int) {
			t.Helper()
			before := api.Stats().Repeated
			api.Repeat(n)
			if err := api.Wait(t.Context(), func() bool { return api.Stats().Repeated == before+n }); err != nil {
				t.Fatal(err)
			}
		}
		part("one")
		replied("one")
		repeat(1)
		part("two")
		replied("one", "two")
		part("three")
		last := part("four")
		replied("one", "two", "three")
		repeat(1) // four alone
		repeat(2) // three and four
		repeat(4)
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: last"})
		replied("one", "two", "three", "last")
		if n := h.stored(t); n != 4 {
			t.Errorf("%d are stored, not 4", n)
		}
		if _, err := api.Edit(bob.ID, last, "changed"); err != nil {
			t.Fatal(err)
		}
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: end"})
		replied("one", "two", "three", "last", "end")
		if e := h.Events(t, "admin", fmt.Sprintf("threads/peers/tg-%d", bob.ID), "subtype = 'context'"); len(e) != 1 || !strings.Contains(e[0].GetContent(), "changed") {
			t.Errorf("after the edit: %v", e)
		}
	})
}

// A group that became a supergroup is still permitted, goes on in its conversation, and is answered
// where it is now.
func TestTelegramSupergroup(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, `dm: open, groups: {allow: ["-42"], mode: always}`)
	say := func(chat int64, kind, text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Chat{ID: chat, Type: kind, Title: "Friends"}, From: &bob, Text: text})
	}
	say(-42, "group", "say: one")
	awaitReplies(t, api, -42, 1)
	api.Migrate(-42, -100777)
	say(-100777, "supergroup", "say: two")
	if got := awaitReplies(t, api, -100777, 1); got[0] != "two" {
		t.Errorf("%q", got)
	}
	list, err := filepath.Glob(filepath.Join(h.Home, "agents/admin/threads/sessions/*"))
	if err != nil || len(list) != 1 || h.stored(t) != 2 {
		t.Errorf("%v, %q, %d stored", err, list, h.stored(t))
	}
}

// Without commands, what would be one is a message.
func TestTelegramWithoutCommands(t *testing.T) {
	api := botAPI(t)
	telegram(t, api, world.Options{}, "dm: open}\ncommands: {enabled: false")
	for _, text := range []string{"/whoami", "/new say: hello"} {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	if got := awaitReplies(t, api, bob.ID, 2); !strings.HasPrefix(got[0], "offline: /whoami") || !strings.HasPrefix(got[1], "offline: /new") {
		t.Errorf("%q", got)
	}
}

// S3-52: a file that the agent sends arrives in the chat with its text, and the model's answer behind it.
func TestTelegramSendFile(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.configure(t, "tools: {also_allow: [send_file, write]}")
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "call: write {\"path\":\"report.csv\",\"content\":\"a,b\\n\"}\n" +
		"call: send_file {\"path\":\"report.csv\",\"caption\":\"the **report**\"}"})
	sent := awaitText(t, api, bob.ID, 0, "the report")
	if len(sent.Files) != 1 || sent.Files[0].Name != "report.csv" || sent.Files[0].MIME != "text/csv" || string(sent.Files[0].Content) != "a,b\n" {
		t.Fatalf("%+v", sent)
	}
	awaitText(t, api, bob.ID, 1, "report.csv")
}

// The data of a file are lost before it is sent. The message is dead, with the reason, and what follows is sent.
func TestTelegramSendLostFile(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.configure(t, "tools: {also_allow: [send_file, write]}")
	api.Fail(telegramtest.Fault{Method: "sendDocument", Status: http.StatusTooManyRequests, RetryAfter: 1, Times: -1})
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "call: write {\"path\":\"report.csv\",\"content\":\"a,b\\n\"}\n" +
		"call: send_file {\"path\":\"report.csv\",\"caption\":\"the report\"}"})
	if err := api.Wait(t.Context(), func() bool { return len(api.Calls("sendDocument")) > 0 }); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(h.World.Home, "agents", "admin", "media", "*", "*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	awaitText(t, api, bob.ID, 0, "report.csv")
	r, err := h.Deliveries.ListDeliveries(t.Context(), &registryv1.ListDeliveriesRequest{AgentId: "admin", State: registryv1.DeliveryState_DELIVERY_STATE_DEAD})
	if err != nil || len(r.GetDeliveries()) != 1 || !strings.HasPrefix(r.GetDeliveries()[0].GetError(), "the file of the message cannot be read") {
		t.Errorf("%v, %v", r, err)
	}
}

// S2-12: what goes wrong with one account has a state that says so and leaves the others alone: a
// token that is refused, another reader, an address that answers with errors.
func TestTelegramStates(t *testing.T) {
	api, broken := botAPI(t), botAPI(t)
	h := open(t, world.Options{}, fmt.Sprintf(`  tg: {type: telegram, token: "env:TG", api: %q, dm: open}
  old: {type: telegram, token: "env:OLD", api: %q}
  twice: {type: telegram, token: "env:TG", api: %q}
  none: {type: telegram, token: "env:NONE", api: %q}
  down: {type: telegram, token: "env:TG", api: "http://127.0.0.1:1"}
`, api.URL(), api.URL(), api.URL(), broken.URL()))
	if c := h.state(t, "old", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "env:OLD") || !strings.Contains(c.GetWhat(), "; then start agentd again") {
		t.Errorf("%v", c)
	}
	if c := h.state(t, "none", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "env:NONE") {
		t.Errorf("%v", c)
	}
	if c := h.state(t, "down", gatewayv1.ChannelState_CHANNEL_STATE_ERROR); !strings.Contains(c.GetWhat(), "next try in") {
		t.Errorf("%v", c)
	}
	// Two accounts of one bot: one receives, the other is refused.
	up, refused := "tg", "twice"
	for end := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		r, err := h.World.Gateway.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]gatewayv1.ChannelState{}
		for _, c := range r.GetChannels() {
			states[c.GetName()] = c.GetState()
		}
		if states["twice"] == gatewayv1.ChannelState_CHANNEL_STATE_UP {
			up, refused = "twice", "tg"
		}
		if states[up] == gatewayv1.ChannelState_CHANNEL_STATE_UP && states[refused] == gatewayv1.ChannelState_CHANNEL_STATE_CONFLICT {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v", states)
		}
	}
	if s := api.Stats(); s.Conflicts != 0 {
		t.Errorf("%+v: both have polled", s)
	}
}

// A bot that another program polls is in conflict, and says so.
func TestTelegramConflict(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	api.Fail(telegramtest.Fault{Method: "getUpdates", Status: 409, Times: -1, Description: "Conflict: terminated by other getUpdates request"})
	if c := h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_CONFLICT); !strings.Contains(c.GetWhat(), "next try in 35s") {
		t.Errorf("%v", c)
	}
	api.Heal()
	if _, err := h.World.Gateway.RestartChannel(t.Context(), &gatewayv1.RestartChannelRequest{Name: "tg"}); err != nil {
		t.Fatal(err)
	}
	api.Say(telegramtest.Message{Chat: telegramtest.Private(ann), From: &ann, Text: "say: hello"})
	if got := awaitReplies(t, api, ann.ID, 1); got[0] != "hello" {
		t.Errorf("%q", got)
	}
}

// configure writes lines to the settings of the agent admin.
func (h *site) configure(t *testing.T, lines string) {
	t.Helper()
	f, err := h.Agents.ReadAgentFile(t.Context(), &registryv1.ReadAgentFileRequest{AgentId: "admin", Name: "config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "admin", Name: "config.yaml", Content: append(f.GetContent(), []byte("\n"+lines+"\n")...)})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitText waits for a message of the bot that contains a text, behind the first after ones.
func awaitText(t *testing.T, api *telegramtest.Server, chat int64, after int, text string) telegramtest.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var found telegramtest.Message
	err := api.Wait(ctx, func() bool {
		n := 0
		for _, m := range api.Messages(chat) {
			if m.From == nil || !m.From.IsBot {
				continue
			}
			if n++; n > after && strings.Contains(m.Text, text) {
				found = m
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatalf("%q: %v: %q", text, err, replies(api, chat))
	}
	return found
}

// S2-46: commands that the gateway answers; what is no command is a message.
func TestTelegramCommands(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	for n, c := range []struct{ text, want string }{
		{"/help", "/status - show the agent"},
		{"/start", "This is the agent admin."},
		{"/whoami@demo_bot", "You are Bob (telegram:1207) at the account tg."},
		{"/status", "Session: agent:admin:telegram:tg:dm:1207, no messages yet"},
		{"/approve ap-1", "only an owner may use /approve."},
		{"/pair ABCDEFGH", "only an owner may use /pair."},
	} {
		say(c.text)
		awaitText(t, api, bob.ID, n, c.want)
		if strings.Contains(c.text, "/approve") { // one notice of a kind in a while
			break
		}
	}
	settled(t, api)
	if n := h.stored(t); n != 0 {
		t.Errorf("%d are stored", n)
	}
	sent, err := h.World.Gateway.TestChannel(t.Context(), &gatewayv1.TestChannelRequest{Name: "tg", To: "1207", Text: "a notice"})
	if m := awaitText(t, api, bob.ID, 5, "a notice"); err != nil || sent.GetProviderId() != fmt.Sprint(m.ID) {
		t.Errorf("%v %v", sent, err)
	}
	if _, err := h.World.Gateway.TestChannel(t.Context(), &gatewayv1.TestChannelRequest{Name: "tg", To: "99"}); !fault.Is(err, fault.ChannelRejected) {
		t.Errorf("a chat that is not known: %v", err)
	}
	if list := replies(api, bob.ID); strings.Contains(list[0], "/approve") {
		t.Errorf("the help of one who is no owner: %s", list[0])
	}
	// What another one wrote is no command of the person who passes it on.
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "/whoami", Forwarded: true})
	awaitText(t, api, bob.ID, 6, "offline: /whoami")
	say("say: /nothing")
	awaitText(t, api, bob.ID, 7, "/nothing")
	say("/status@other_bot")
	settled(t, api)
	if n := h.stored(t); n != 3 {
		t.Errorf("%d are stored, not 3", n)
	}
}

// Example 2 of the tools: what waits for a decision is shown to the owner in a chat, once more
// after a restart of all services, and decided by a button; another person may not.
func TestTelegramApproval(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	owners := func(list string) {
		if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"owners"}, Value: list}); err != nil {
			t.Fatal(err)
		}
	}
	owners(`["telegram:1207"]`)
	h.configure(t, "sandbox: {mode: \"off\"}\napprovals: ask")
	say := func(u telegramtest.User, text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: text})
	}
	ran := func() bool {
		_, err := os.Stat(filepath.Join(h.Home, "agents/admin/workdir/ran"))
		return err == nil
	}
	say(bob, "run: touch ran")
	asked := awaitText(t, api, bob.ID, 0, "admin wants to run")
	id := strings.Fields(asked.Text[strings.Index(asked.Text, "/approve"):])[1]
	if !strings.Contains(asked.Text, "touch ran") || len(asked.Buttons) < 2 || !strings.Contains(asked.Buttons[0].Data, strings.TrimPrefix(id, "ap-")+" ") || len(id) != len("ap-3f9c2a") || ran() {
		t.Fatalf("%+v", asked)
	}
	say(ann, "/approve "+id)
	awaitText(t, api, ann.ID, 0, "only an owner may use /approve")
	if len(replies(api, ann.ID)) != 1 || ran() {
		t.Fatalf("%q", replies(api, ann.ID))
	}
	shown := len(replies(api, bob.ID))
	h.Stop()
	h = telegram(t, api, world.Options{Home: h.Home}, "dm: open")
	owners(`["telegram:1207"]`)
	again := awaitText(t, api, bob.ID, shown, "admin wants to run")
	if !strings.Contains(again.Text, id) || ran() {
		t.Fatalf("%+v", again)
	}
	if _, err := api.Press(bob.ID, again.ID, bob, again.Buttons[0].Data); err != nil {
		t.Fatal(err)
	}
	awaitText(t, api, bob.ID, shown+1, "Approved once")
	h.Await(t, "admin", 1)
	if !ran() {
		t.Error("what was approved did not run")
	}
	say(bob, "/approve "+id)
	awaitText(t, api, bob.ID, shown+2, "already")
}

// S2-46: typing goes on after a restart of the account, without another message, until the run has ended. While the account
// receives nothing is stored for it, however long the run is.
func TestTypingGoesOn(t *testing.T) {
	api, calls := botAPI(t), prometheus.NewRegistry()
	h := telegram(t, api, world.Options{Metrics: calls}, "dm: open")
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"owners"}, Value: `["telegram:1207"]`}); err != nil {
		t.Fatal(err)
	}
	h.configure(t, "sandbox: {mode: \"off\"}\napprovals: ask")
	shown := func(more int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		n := len(api.Calls("sendChatAction"))
		if err := api.Wait(ctx, func() bool { return len(api.Calls("sendChatAction")) >= n+more }); err != nil {
			t.Fatalf("%v: typing was shown %d times", err, len(api.Calls("sendChatAction")))
		}
	}
	api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "run: touch ran"})
	asked := awaitText(t, api, bob.ID, 0, "admin wants to run")
	shown(1)
	settled(t, api)
	stored := func(want float64) {
		t.Helper()
		if n := handledBy(t, calls)["ChannelService/PutCursor"]; n != want {
			t.Errorf("cursors were stored %v times, not %v", n, want)
		}
	}
	shown(3)      // each 4 seconds: cursors that changed were stored twice meanwhile, each 5 seconds
	stored(1)     // where the receiver goes on
	for range 2 { // what the first restart resumed, the second resumes as well
		if _, err := h.World.Gateway.RestartChannel(t.Context(), &gatewayv1.RestartChannelRequest{Name: "tg"}); err != nil {
			t.Fatal(err)
		}
		h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		shown(1)
	}
	if s := api.Stats(); s.Repeated != 0 {
		t.Fatalf("the message came again: %+v", s)
	}
	stored(2)
	if _, err := api.Press(bob.ID, asked.ID, bob, asked.Buttons[0].Data); err != nil {
		t.Fatal(err)
	}
	h.Await(t, "admin", 1)
	settled(t, api)
	if _, err := h.World.Gateway.RestartChannel(t.Context(), &gatewayv1.RestartChannelRequest{Name: "tg"}); err != nil {
		t.Fatal(err)
	}
	h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	n := len(api.Calls("sendChatAction"))
	api.Say(telegramtest.Message{Chat: telegramtest.Private(ann), From: &ann, Text: "slow: 1"})
	awaitReplies(t, api, ann.ID, 1)
	for _, c := range api.Calls("sendChatAction")[n:] {
		if c.Chat == bob.ID {
			t.Error("typing is shown for a run that has ended")
		}
	}
}

// S2-15: the notice shows what always allows from now on, and so does the answer to it; then the same program runs
// without a question.
func TestTelegramAlways(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, fmt.Sprintf("dm: open}\nowners: [\"telegram:%d\"]\ntools: {profile: theclaw", bob.ID))
	h.configure(t, "sandbox: {mode: \"off\"}\ntools: {exec: {security: allowlist, ask: on-miss}}")
	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	say("run: touch ran")
	asked := awaitText(t, api, bob.ID, 0, "admin wants to run")
	if len(asked.Buttons) != 3 || !strings.HasSuffix(asked.Buttons[1].Data, " always") || !strings.Contains(asked.Text, "/touch ran with any further arguments") || !strings.HasSuffix(strings.TrimSpace(asked.Text), "touch ran") {
		t.Fatalf("%+v", asked)
	}
	if _, err := api.Press(bob.ID, asked.ID, bob, asked.Buttons[1].Data); err != nil {
		t.Fatal(err)
	}
	if m := awaitText(t, api, bob.ID, 1, "From now on admin may run"); !strings.Contains(m.Text, "/touch ran with any further arguments") {
		t.Errorf("%q", m.Text)
	}
	h.Await(t, "admin", 1)
	awaitReplies(t, api, bob.ID, 3) // the last one is from the agent
	say("run: touch ran unasked")
	awaitReplies(t, api, bob.ID, 4)
	h.Await(t, "admin", 2)
	if _, err := os.Stat(filepath.Join(h.Home, "agents/admin/workdir/unasked")); err != nil {
		t.Error(err)
	}
	if list := replies(api, bob.ID); slices.ContainsFunc(list[1:], func(s string) bool { return strings.Contains(s, "wants to run") }) {
		t.Errorf("asked again: %q", list)
	}
}

// Example 3 of the tools: a question is asked in the chat, and the next message of the person is the
// answer of the same turn, also after a restart in between; one that is answered elsewhere ends
// with a notice.
func TestTelegramQuestion(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open")
	h.configure(t, "tools: {also_allow: [ask_user]}")
	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	const question = `call: ask_user {"question":"Which account?","options":["main","savings"]}`
	say(question)
	awaitText(t, api, bob.ID, 0, "Which account?")
	h.Stop()
	h = telegram(t, api, world.Options{Home: h.Home}, "dm: open")
	say("2")
	awaitText(t, api, bob.ID, 1, "savings")
	if turn := h.Await(t, "admin", 2); turn.GetFate() != registryv1.Fate_FATE_MERGED {
		t.Errorf("%v", turn)
	}
	before := len(replies(api, bob.ID))
	say(question)
	awaitText(t, api, bob.ID, before, "Which account?")
	list, err := h.Questions.ListQuestions(t.Context(), &registryv1.ListQuestionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list.GetQuestions() {
		if q.GetState() == registryv1.QuestionState_QUESTION_STATE_PENDING {
			if _, err := h.Questions.AnswerQuestion(t.Context(), &registryv1.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: "main"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitText(t, api, bob.ID, before+1, "Answered elsewhere: Which account? - main")
}

// S3-48: the options of a question are buttons; the person who was asked answers with one, and no other person does. In
// a topic of a group the question, the answer and the notice of an answer elsewhere are in the topic.
func TestTelegramQuestionButtons(t *testing.T) {
	api := botAPI(t)
	h := telegram(t, api, world.Options{}, "dm: open, groups: {allow: ['*'], mode: always}")
	h.configure(t, "tools: {also_allow: [ask_user]}")
	group := telegramtest.Chat{ID: -100300, Type: "supergroup", Title: "G", IsForum: true}
	const topic, question = 7, `call: ask_user {"question":"Which account?","options":["main","savings"]}`
	ask := func() telegramtest.Message {
		t.Helper()
		before := len(replies(api, group.ID))
		api.Say(telegramtest.Message{Chat: group, From: &bob, Thread: topic, Text: question})
		m := awaitText(t, api, group.ID, before, "Which account?")
		if len(m.Buttons) != 2 || m.Buttons[0].Text != "1. main" || m.Buttons[1].Text != "2. savings" || m.Thread != topic {
			t.Fatalf("%+v", m)
		}
		return m
	}
	press := func(m telegramtest.Message, u telegramtest.User, n int) {
		t.Helper()
		if _, err := api.Press(group.ID, m.ID, u, m.Buttons[n].Data); err != nil {
			t.Fatal(err)
		}
	}
	m := ask()
	before := len(replies(api, group.ID))
	for range 3 { // answered once
		press(m, ann, 0)
	}
	awaitText(t, api, group.ID, before, "another person was asked")
	press(m, bob, 1)
	if got := awaitText(t, api, group.ID, before, "Answered: savings"); got.Thread != topic {
		t.Errorf("%+v", got)
	}
	awaitText(t, api, group.ID, before, `{"answer":"savings"}`)
	if turn := h.Await(t, "admin", 1); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%v", turn)
	}
	press(m, bob, 0) // a late one changes nothing
	awaitText(t, api, group.ID, before+3, "Answered: savings")
	if got := replies(api, group.ID)[before:]; len(got) != 4 {
		t.Errorf("%q", got)
	}
	if n := h.stored(t); n != 1 {
		t.Errorf("%d are stored: a button is no message", n)
	}
	ask()
	before = len(replies(api, group.ID))
	list, err := h.Questions.ListQuestions(t.Context(), &registryv1.ListQuestionsRequest{State: registryv1.QuestionState_QUESTION_STATE_PENDING})
	if err != nil || len(list.GetQuestions()) != 1 {
		t.Fatal(list, err)
	}
	if _, err := h.Questions.AnswerQuestion(t.Context(), &registryv1.AnswerQuestionRequest{QuestionId: list.GetQuestions()[0].GetQuestionId(), Answer: "main"}); err != nil {
		t.Fatal(err)
	}
	if got := awaitText(t, api, group.ID, before, "Answered elsewhere: Which account? - main"); got.Thread != topic {
		t.Errorf("%+v", got)
	}
}
