package message

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/thread"
)

// A repeat under a key must be the same event to the byte (S0-16).
func TestEnvelopeDependsOnItsArgumentsAlone(t *testing.T) {
	key := NewKey()
	first, again := Console.Envelope(key, "hi"), Console.Envelope(key, "hi")
	if first != again {
		t.Error("two envelopes of one message differ")
	}
	var m struct {
		ID, Text, ChannelID string
		CreatedAt           *string `json:"created_at"`
	}
	text := "a \"quoted\"\nline \u2028 \\ "
	if err := json.Unmarshal([]byte(Console.Envelope(key, text)), &m); err != nil || m.ID != key || m.Text != text || m.CreatedAt == nil {
		t.Errorf("envelope %s: %v %+v", Console.Envelope(key, text), err, m)
	}
	if thread.ParseStamp(*m.CreatedAt).IsZero() {
		t.Errorf("created_at %q", *m.CreatedAt)
	}
	want := `{"id":"order-7","channel_id":"cli","peer_id":"cli","peer_name":null,"session_id":"cli","text":"hi","attachments":[],"reply_to":null,"created_at":null}`
	if got := Console.Envelope("order-7", "hi"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckText(t *testing.T) {
	for text, reason := range map[string]string{
		"hi": "", " \n": fault.WrongUsage, "\xff": fault.InvalidArgument, strings.Repeat("x", thread.MaxEvent+1): fault.EventTooLarge,
		strings.Repeat("\n", thread.MaxEvent/2) + "x": fault.EventTooLarge,
	} {
		err := CheckText(Console.Envelope("k", text), text)
		if (err == nil) != (reason == "") || reason != "" && !fault.Is(err, reason) {
			t.Errorf("%.20q: %v, want %q", text, err, reason)
		}
	}
}

// Each conversation of the console has a thread and a source of its own, and the
// first one is where it always was.
func TestPeers(t *testing.T) {
	if Console.Source() != source.Console || Console.Conversation() != "threads/peers/cli-cli" {
		t.Errorf("%s %s", Console.Source(), Console.Conversation())
	}
	p, err := ParsePeer("plan.b_2")
	if err != nil || p.Conversation() != "threads/peers/cli-plan.b_2" {
		t.Errorf("%v %s", err, p.Conversation())
	}
	got, _, err := route.Of(p.Source(), p.Envelope("k", "hi"))
	if err != nil || got != p.Tuple() {
		t.Errorf("%+v, %v; want %+v", got, err, p.Tuple())
	}
	for _, name := range []string{"a/b", "A", "-", "a:b", strings.Repeat("x", 64), "ä"} {
		if _, err := ParsePeer(name); !fault.Is(err, fault.WrongUsage) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// S4-28, S4-29, S4-30, S4-31: the key of the console's conversation follows the thread that stores it.
func TestSessionKeys(t *testing.T) {
	for thread, want := range map[string]string{
		Console.Conversation():        "agent:a1:console:cli:dm:cli",
		"threads/channels/cli":        "agent:a1:console:cli:all",
		"threads/main":                "agent:a1:home",
		"threads/dms/console-cli":     "agent:a1:console:dm:cli",
		"threads/dms/cli":             "agent:a1:dm:cli",
		"threads/peers/telegram-1207": "agent:a1:console:cli:dm:cli",
	} {
		got := Console.SessionKey("a1", thread, "home")
		k, err := sessionkey.Parse(got)
		if got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", thread, got, err, want)
		}
		if k.Thread() != thread && !strings.HasSuffix(thread, "1207") {
			t.Errorf("%s has the thread %s, not %s", got, k.Thread(), thread)
		}
	}
	for _, p := range []Peer{Console, "plan.b_2"} { // the thread of a message without a key
		if k, err := sessionkey.Parse(p.SessionKey("a1", p.Conversation(), "main")); err != nil || k.Thread() != p.Conversation() {
			t.Errorf("%s: %+v, %v", p, k, err)
		}
	}
}

func TestText(t *testing.T) {
	for content, want := range map[string]string{`{"text":"a"}`: "a", `{"text":""}`: "", "plain": "plain", `{"x":1}`: `{"x":1}`, `{"text":1}`: `{"text":1}`} {
		if got := Text(content); got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}

// S4-68: what a call of the message tool sends to its peer is told apart from what it does elsewhere, which is shown
// with its place.
func TestMessageTool(t *testing.T) {
	for arguments, want := range map[string]bool{
		`{"text":"x"}`: true, `{"text":"x","action":"send"}`: true, `{"text":"x","to":"7"}`: false, `{"text":"x","channel":"tg"}`: false,
		`{"text":"x","action":"edit","message_id":"7"}`: false, `{"action":"delete","message_id":"7"}`: false, `no JSON`: true,
	} {
		if text, ok := ToPeer(arguments); ok != want || ok && text != "x" && text != "no JSON" {
			t.Errorf("%s: %q %t", arguments, text, ok)
		}
	}
	for content, want := range map[string]string{
		`{"text":"x","reply_context":{"channel_id":"tg","session_id":"7"}}`:                "[sent in 7 of tg] x",
		`{"action":"delete","text":"","reply_context":{"channel_id":"sl","peer_id":"U1"}}`: "[delete in U1 of sl]",
	} {
		if got := Done(content); got != want {
			t.Errorf("%s: %q", content, got)
		}
	}
}
