package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rc(t *testing.T, doc string) ReplyContext {
	t.Helper()
	var out ReplyContext
	if err := json.Unmarshal([]byte(doc), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestChoose is row S0-44: first match wins, an absent key means xgw, an empty
// list means nothing leaves.
func TestChoose(t *testing.T) {
	rules := Settings{
		Outbound: []Rule{{"peers/vip-*", "hook"}, {"peers/**", "xgw"}, {"channels/*/side", "hook"}},
		Channels: map[string]Definition{"hook": {Type: "webhook"}},
	}
	if err := rules.Validate(); err != nil {
		t.Fatal(err)
	}
	none := Settings{Outbound: []Rule{}}
	account := Settings{Account: "shop", AccountType: "webhook", Channels: map[string]Definition{"shop": {Type: "webhook", URL: "https://shop.example"}}}
	mute := Settings{Account: "shop", AccountType: "webhook"}
	ruled := account
	ruled.Outbound = []Rule{{"**", "xgw"}}
	const shop = `{"channel_type":"external","channel_id":"shop"}`
	const ext, intern, console = `{"channel_type":"telegram"}`, `{"channel_type":"internal"}`, `{"channel_type":"console"}`
	for _, tc := range []struct {
		name           string
		settings       Settings
		thread, source string
		rc, want       string
	}{
		{"key absent", Settings{}, "threads/peers/tg-1", "", ext, "xgw"},
		{"key absent, no reply context", Settings{}, "threads/main", "", `null`, "xgw"},
		{"by the account of the message", account, "threads/peers/shop-1", "external:webhook:shop:dm:1:1", shop, "shop"},
		{"by it, known by the reply context alone", account, "threads/peers/shop-1", "self", shop, "shop"},
		{"an account that only receives", mute, "threads/peers/shop-1", "external:webhook:shop:dm:1:1", shop, ""},
		{"rules beat the account", ruled, "threads/peers/shop-1", "external:webhook:shop:dm:1:1", shop, "xgw"},
		{"another platform with a channel of that name", account, "threads/peers/shop-1", "external:telegram:shop:dm:1:1", shop, "xgw"},
		{"another account", account, "threads/peers/tg-1", "external:webhook:tg:dm:1:1", `{"channel_type":"external","channel_id":"tg"}`, "xgw"},
		{"empty list", none, "threads/peers/tg-1", "", ext, ""},
		{"internal beats the empty list", none, "threads/peers/internal-b", "", intern, "internal"},
		{"console beats the empty list", none, "threads/peers/cli-cli", "", console, "console"},
		{"console by source", none, "threads/peers/cli-cli", "external:console:cli:dm:cli:cli", `{"channel_type":"external"}`, "console"},
		{"internal by source", rules, "threads/peers/internal-b", "internal:dm:default:b", ext, "internal"},
		{"an external peer cannot name an agent", rules, "threads/peers/tg-1", "external:telegram:tg:dm:1:1", intern, "xgw"},
		{"nor call his channel so", rules, "threads/peers/tg-1", "external:internal:tg:dm:1:1", intern, "xgw"},
		{"self says nothing", rules, "threads/peers/tg-1", "self", intern, "internal"},
		{"first match", rules, "threads/peers/vip-1", "", ext, "hook"},
		{"second match", rules, "threads/peers/tg-1", "", ext, "xgw"},
		{"deeper", rules, "threads/peers/tg/1/2", "", ext, "xgw"},
		{"another folder", rules, "threads/channels/tg", "", ext, ""},
		{"one segment", rules, "threads/channels/tg/side", "", ext, "hook"},
		{"not two segments", rules, "threads/channels/tg/x/side", "", ext, ""},
		{"not a conversation", rules, "inbox", "", ext, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			via, ok := Choose(tc.settings, tc.thread, tc.source, rc(t, tc.rc))
			if via != tc.want || ok != (tc.want != "") {
				t.Errorf("Choose = %q, %v; want %q", via, ok, tc.want)
			}
		})
	}
}

func TestMatchThread(t *testing.T) {
	for _, tc := range []struct {
		pattern, id string
		want        bool
	}{
		{"**", "main", true},
		{"**", "peers/a/b", true},
		{"*", "main", true},
		{"*", "peers/a", false},
		{"peers/**", "peers", true},
		{"peers/**", "peers2/a", false},
		{"**/side", "a/b/side", true},
		{"**/side", "side", true},
		{"**/a/**/b", "x/a/b/a/c/b", true},
		{"**/a/**/b", "x/b/a", false},
		{"a/**/**/b", "a/b", true},
		{"peers/tg-?", "peers/tg-1", true},
		{"peers/[a-c]*", "peers/bob", true},
		{"peers/tg-1", "peers/tg-1/x", false},
		{"peers/%2F*", "peers/%2Fx", true},
		{strings.Repeat("**/a/", 60) + "b", strings.Repeat("a/", 300) + "c", false},
	} {
		if got := matchThread(tc.pattern, tc.id); got != tc.want {
			t.Errorf("matchThread(%.40q, %.40q) = %v", tc.pattern, tc.id, got)
		}
	}
}

func TestValidateNamesEveryMistake(t *testing.T) {
	err := Settings{
		Outbound: []Rule{{"peers/[", "xgw"}, {"**", "pigeon"}, {"", "console"}},
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"outbound[0].thread_pattern", `outbound[1].via: "pigeon"`, "outbound[2].thread_pattern"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}

// TestParseContent is rows S0-123 (unknown keys survive) and S0-126 (a content
// that cannot be delivered is dead at once).
func TestParseContent(t *testing.T) {
	c, err := ParseContent(json.RawMessage(`{"text":"hi","reply_context":{"channel_id":"tg","peer_id":4711,"visibility":{"x":[1]}}}`))
	got := c.ReplyContext
	if err != nil || c.Text != "hi" || got.ChannelID() != "tg" || got.PeerID() != "4711" {
		t.Fatalf("%q %v %v", c.Text, got, err)
	}
	if string(got["visibility"]) != `{"x":[1]}` {
		t.Errorf("unknown key became %s", got["visibility"])
	}
	for _, doc := range []string{``, `hello`, `[]`, `{"text":7}`, `{}`, `{"text":"x","reply_context":"tg"}`, `{"text":"x","reply_context":[1]}`} {
		if _, err := ParseContent(json.RawMessage(doc)); AsError(err) == nil || AsError(err).Class != Rejected {
			t.Errorf("%s: %v", doc, err)
		}
	}
	for _, doc := range []string{`{"text":"x"}`, `{"text":"x","reply_context":null}`} {
		if c, err := ParseContent(json.RawMessage(doc)); err != nil || c.ReplyContext != nil {
			t.Errorf("%s: %v %v", doc, c, err)
		}
	}
	for doc, ok := range map[string]bool{`{"a":"x"}`: true, `{}`: false, `{"a":""}`: false, `{"a":"x\u0000y"}`: false, `{"a":{}}`: false, `{"a":null}`: false} {
		if _, err := rc(t, doc).Need("a"); (err == nil) != ok {
			t.Errorf("Need(%s) = %v", doc, err)
		}
	}
}

// inboxes is where the internal channel ends: the events by agent, deduplicated
// by key as the registry does.
type inboxes struct {
	events map[string][]string
	seen   map[string]int64
	source string
	err    error
}

func (b *inboxes) Push(_ context.Context, agentID, source, eventType, content, key string) (int64, error) {
	if b.err != nil {
		return 0, b.err
	}
	if id, ok := b.seen[key]; ok {
		return id, nil
	}
	if b.events == nil {
		b.events, b.seen = map[string][]string{}, map[string]int64{}
	}
	b.events[agentID] = append(b.events[agentID], content)
	b.seen[key] = int64(len(b.events[agentID]))
	b.source = source + " " + eventType
	return b.seen[key], nil
}

// TestInbox is row S0-125: the answer arrives with the way back in it.
func TestInbox(t *testing.T) {
	var b inboxes
	c := NewInbox(&b)
	m := Message{AgentID: "bob", Key: "k1", Text: "<tea> & \"milk\"\n", ReplyContext: rc(t,
		`{"channel_type":"internal","channel_id":"internal","peer_id":"amy","source_agent_id":"amy","hops":2,"visibility":"team"}`)}
	for range 2 { // Keyed: the repeat makes no second event
		got, err := c.Send(t.Context(), m)
		if err != nil || got.ProviderID != "amy/1" {
			t.Fatalf("%v %v", got, err)
		}
	}
	want := `{"text":"<tea> & \"milk\"\n","reply_context":{"channel_id":"internal","channel_type":"internal","hops":3,"peer_id":"bob","session_id":"default","source_agent_id":"bob","visibility":"team"},"hops":3,"in_reply_to":"k1"}`
	if diff := cmp.Diff([]string{want}, b.events["amy"]); diff != "" {
		t.Error(diff)
	}
	if b.source != "internal:dm:default:bob message" {
		t.Errorf("source %q", b.source)
	}
	if m.ReplyContext.PeerID() != "amy" {
		t.Error("the message's own reply context was changed")
	}
	if Destination(c, m) != "amy" || Destination(Console{}, m) != "" {
		t.Error("Destination does not name the receiver")
	}
}

// TestPingPongEnds is row S0-125's other half: two agents that answer every
// message stop at the hop limit.
func TestPingPongEnds(t *testing.T) {
	var b inboxes
	c := NewInbox(&b)
	me, content := "bob", `{"text":"hi","reply_context":{"source_agent_id":"amy"}}`
	for sends := 0; ; sends++ {
		in, err := ParseContent(json.RawMessage(content))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Send(t.Context(), Message{AgentID: me, Key: fmt.Sprint(sends), Text: in.Text, ReplyContext: in.ReplyContext})
		if err != nil {
			e := AsError(err)
			if sends != MaxHops || e.Class != Rejected || e.Reason != ReasonHopLimit {
				t.Fatalf("after %d sends: %+v", sends, e)
			}
			return
		}
		me = in.ReplyContext.SourceAgentID()
		content = b.events[me][len(b.events[me])-1]
		if sends > MaxHops {
			t.Fatal("no end")
		}
	}
}

func TestInboxErrors(t *testing.T) {
	to := rc(t, `{"source_agent_id":"amy"}`)
	for _, tc := range []struct {
		name string
		rc   ReplyContext
		push error
		want Class
	}{
		{"no reply context", nil, nil, Rejected},
		{"no agent", rc(t, `{"channel_type":"internal"}`), nil, Rejected},
		{"forged hops", rc(t, `{"source_agent_id":"amy","hops":-3}`), nil, Rejected},
		{"hops of another type", rc(t, `{"source_agent_id":"amy","hops":"1"}`), nil, Rejected},
		{"inbox full", to, &Error{Class: Unavailable, What: "full"}, Unavailable},
		{"drained", to, context.Canceled, Interrupted},
		{"unclassified", to, errors.New("boom"), Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewInbox(&inboxes{err: tc.push}).Send(t.Context(), Message{AgentID: "bob", ReplyContext: tc.rc})
			if e := AsError(err); e == nil || e.Class != tc.want {
				t.Errorf("%v, want %v", e, tc.want)
			}
		})
	}
}

func TestConsole(t *testing.T) {
	if got, err := (Console{}).Send(t.Context(), Message{}); err != nil || got != (Receipt{}) {
		t.Errorf("%v %v", got, err)
	}
}

// TestClean is the log injection row of SECURITY.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "  a \n\tb  ": "a b", "\x1b[31mred\x00": "[31mred", "a\u202eb": "a b",
		"0123456789": "0123456789", "0123456789x": "0123456789...", "\xff\xfeok": "ok", "żółw": "żółw",
	} {
		if got := Clean(in, 10); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	got := fmt.Sprint(None, Query, Keyed, Failed, Unavailable, Rejected, Interrupted)
	if got != "none query keyed failed unavailable rejected interrupted" {
		t.Error(got)
	}
	if AsError(nil) != nil {
		t.Error("nil became an error")
	}
}

// S3-48: the options of a question are buttons with commands that are made of its id and a number, whatever the content says.
func TestQuestionButtons(t *testing.T) {
	for content, want := range map[string]string{
		`{"text":"x","question":{"id":"019ab-7","options":["main","a\nb\u202e","` + strings.Repeat("y", 60) + `"]}}`: "[{1. main /answer 019ab-7 1} {2. a b /answer 019ab-7 2} {3. " + strings.Repeat("y", 40) + "... /answer 019ab-7 3}]",
		`{"text":"x"}`: "[]",
		`{"text":"x","question":{"id":"1 2\n/approve","options":["main"]}}`: "[]",
		`{"text":"x","question":{"id":"","options":["main"]}}`:              "[]",
		`{"text":"x","question":"text of another program"}`:                 "[]",
	} {
		c, err := ParseContent(json.RawMessage(content))
		if got := fmt.Sprint(c.Question.Buttons()); err != nil || c.Text != "x" || got != want {
			t.Errorf("%s: %s, %v; want %s", content, got, err, want)
		}
	}
}
