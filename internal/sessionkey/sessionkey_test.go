package sessionkey_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/testing/vectors"
)

// S4-28 to S4-33: the text and the thread of each form.
func TestForms(t *testing.T) {
	long := strings.Repeat("x", 5<<10)
	for _, c := range []struct {
		key    sessionkey.Key
		text   string
		thread string
	}{
		{sessionkey.Key{Scope: sessionkey.AccountChannelPeer, Type: "telegram", Account: "main", Peer: "7"}, "agent:a:telegram:main:dm:7", "threads/peers/main-7"},
		{sessionkey.Key{Scope: sessionkey.Main, MainKey: "main"}, "agent:a:main", "threads/main"},
		{sessionkey.Key{Scope: sessionkey.Peer, Peer: "Bob"}, "agent:a:dm:Bob", "threads/dms/%42ob"},
		{sessionkey.Key{Scope: sessionkey.ChannelPeer, Type: "telegram", Peer: "12-07"}, "agent:a:telegram:dm:12-07", "threads/dms/telegram-12%2D07"},
		{sessionkey.Key{Scope: sessionkey.AccountChannelPeer, Type: "telegram", Account: "tg", Peer: "1207"}, "agent:a:telegram:tg:dm:1207", "threads/peers/tg-1207"},
		{sessionkey.Key{Scope: sessionkey.Channel, Type: "telegram", Account: "tg"}, "agent:a:telegram:tg:all", "threads/channels/tg"},
		{sessionkey.Key{Scope: sessionkey.Conversation, Type: "discord", Kind: "channel", Peer: "77"}, "agent:a:discord:channel:77", "threads/sessions/discord.channel-77"},
		{sessionkey.Key{Scope: sessionkey.Conversation, Type: "discord", Kind: "group", Peer: "a:thread:b"}, "agent:a:discord:group:a%3Athread:b", "threads/sessions/discord.group-a:thread:b"},
		{sessionkey.Key{Scope: sessionkey.Named, Word: "cron", Name: "Daily report"}, "agent:a:cron:Daily report", "threads/named/cron-%44aily%20report"},
		{sessionkey.Key{Scope: sessionkey.Conversation, Type: "slack", Kind: "channel", Peer: "C1", ThreadID: "168.9"}, "agent:a:slack:channel:C1:thread:168.9", "threads/topics/s.slack.channel-%431-168.9"},
		{sessionkey.Key{Scope: sessionkey.Main, MainKey: "home", ThreadID: "thread:x"}, "agent:a:home:thread:thread%3Ax", "threads/topics/m.main-thread:x"},
		{sessionkey.Key{Scope: sessionkey.Peer, Peer: long}, "agent:a:dm:" + long, "threads/dms/" + strings.Repeat("x", 80) + "~4d64e2c45bd1ec955bf3295362d1614a"},
	} {
		c.key.Agent = "a"
		if got := c.key.String(); got != c.text {
			t.Errorf("text %.100q, want %.100q", got, c.text)
		}
		if got := c.key.Thread(); got != c.thread {
			t.Errorf("%.100s: thread %q, want %q", c.text, got, c.thread)
		}
		if got := sessionkey.OfGroup(c.thread); got != (c.key.Scope == sessionkey.Conversation) {
			t.Errorf("%.100s: of a group %v", c.text, got)
		}
		if got, err := sessionkey.Parse(c.text); err != nil || got != c.key {
			t.Errorf("parse %.100q: %+v, %v", c.text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", "agent", "agent:", "agent::x", "agent:a", "agent:a:", "agent:A:main", "Agent:a:main", " agent:a:main", "nope",
		"agent:a:dm", "agent:a:dm:", "agent:a:all", "agent:a:thread:1", "agent:a:telegram:tg", "agent:a:telegram:tg:dm:",
		"agent:a:telegram:tg:all:x", "agent:a:b:c:d", "agent:a:cron:", "agent:a:main:thread:", "agent:a:dm:%41", "agent:a:dm:%zz",
		"agent:a:dm:a\x00b", "agent:a:Telegram:dm:1", "agent:a:telegram:dm:a:thread:b:thread:", "agent:a:main:all", "agent:a:x:y:dm",
	} {
		if k, err := sessionkey.Parse(s); fault.From(err).Reason != fault.SessionKeyInvalid {
			t.Errorf("%q: %+v, %v, want SESSION_KEY_INVALID", s, k, err)
		}
	}
}

// S4-16: the agent of a key, else the default one.
func TestAgentOf(t *testing.T) {
	for key, want := range map[string]string{"agent:work:main": "work", "agent:work:b:c:d": "work", "nope": "admin", "agent::x": "admin", "agent:Work:main": "admin", "": "admin"} {
		if got := sessionkey.AgentOf(key, "admin"); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// S4-17: ids that are made of names, as recorded; and what is made stays as it is.
func TestAgentID(t *testing.T) {
	vectors.Compare(t, "agent-id", nil, func(t *testing.T, v vectors.Vector) any {
		in := ""
		if err := json.Unmarshal(v.Input, &in); err != nil {
			t.Fatal(err)
		}
		return sessionkey.AgentID(in)
	})
}

func FuzzAgentID(f *testing.F) {
	for _, s := range []string{"", "Work", "_" + strings.Repeat("a", 62) + "-b", "日本語", "-x-", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id := sessionkey.AgentID(s)
		if again := sessionkey.AgentID(id); again != id || id == "" || len(id) > 64 {
			t.Errorf("%q -> %q -> %q", s, id, again)
		}
	})
}

// hostile are pieces of ids that the text of a key and a path give a meaning.
var hostile = []string{":", "thread", ":thread:", "thread:", "%", "%3A", "/", "..", "-", "~", "dm", "all", "group", "é", "👩‍👧", "A", "a", "0", "\x00", "\n", "\xff", " ", "\u200f", "\u0085"}

func id(r *rand.Rand) string {
	if r.IntN(50) == 0 {
		return strings.Repeat(hostile[r.IntN(len(hostile))], 1+r.IntN(5<<10)/4)
	}
	var b strings.Builder
	for range 1 + r.IntN(6) {
		b.WriteString(hostile[r.IntN(len(hostile))])
	}
	return b.String()
}

// accounts: the name of an account tells its type, as in a home.
var accounts = []struct{ name, kind string }{{"tg", "telegram"}, {"tg2", "telegram"}, {"dc", "discord"}, {"a-b", "a"}, {"internal", "telegram"}, {"cli", "slack"}, {"x.y-z", "plug-in.x"}}

func random(r *rand.Rand) sessionkey.Key {
	k := sessionkey.Key{Agent: "a"}
	at := accounts[r.IntN(len(accounts))]
	switch r.IntN(7) {
	case 0:
		k.Scope, k.MainKey = sessionkey.Main, "main"
	case 1:
		k.Scope, k.Peer = sessionkey.Peer, id(r)
	case 2:
		k.Scope, k.Type, k.Peer = sessionkey.ChannelPeer, at.kind, id(r)
	case 3:
		k.Scope, k.Type, k.Account, k.Peer = sessionkey.AccountChannelPeer, at.kind, at.name, id(r)
	case 4:
		k.Scope, k.Type, k.Account = sessionkey.Channel, at.kind, at.name
	case 5:
		k.Scope, k.Type, k.Kind, k.Peer = sessionkey.Conversation, at.kind, []string{"group", "channel"}[r.IntN(2)], id(r)
	default:
		k.Scope, k.Word, k.Name = sessionkey.Named, []string{"subagent", "cron", "hook", "plan", "session"}[r.IntN(5)], id(r)
	}
	if r.IntN(3) == 0 {
		k.ThreadID = id(r)
	}
	return k
}

// S4-34: 200,000 random keys come back from their text, and different ones have different texts
// and different threads, on a file system that ignores case as well.
func TestRandomKeys(t *testing.T) {
	const n = 200_000
	r := rand.New(rand.NewPCG(1, 2))
	texts, threads := map[string]sessionkey.Key{}, map[string]sessionkey.Key{}
	for range n {
		k := random(r)
		text, thread := k.String(), k.Thread()
		if got, err := sessionkey.Parse(text); err != nil || got != k {
			t.Fatalf("%+v -> %.200q -> %+v, %v", k, text, got, err)
		}
		if other, ok := texts[text]; ok && other != k {
			t.Fatalf("one text for two keys: %.200q: %+v, %+v", text, k, other)
		}
		if other, ok := threads[strings.ToLower(thread)]; ok && other != k {
			t.Fatalf("one thread for two keys: %s: %+v, %+v", thread, k, other)
		}
		for part := range strings.SplitSeq(thread, "/") {
			if part == "" || part == "." || part == ".." || len(part) > 255 {
				t.Fatalf("%+v: thread %q", k, thread)
			}
		}
		texts[text], threads[strings.ToLower(thread)] = k, k
	}
	t.Logf("keys=%d different=%d threads=%d", n, len(texts), len(threads))
}

// S4-34: what parses is written in the same way again.
func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		f.Add(random(r).String())
	}
	f.Add("agent:a:dm:thread:thread:thread:x")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := sessionkey.Parse(s)
		if err != nil {
			return
		}
		if k.String() != s || k.Validate() != nil {
			t.Errorf("%q -> %+v -> %q", s, k, k.String())
		}
	})
}
