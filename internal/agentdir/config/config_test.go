package config

import (
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

func TestDefaultPassesItsChecks(t *testing.T) {
	c := Default()
	c.AgentID, c.Inbox.Path, c.Session.DMScope, c.Approvals = "a1", "inbox", "main", "none" // no value is their default
	for _, f := range Fields() {
		if problem := f.Check(&c); problem != "" {
			t.Errorf("%s: %s", f.Key, problem)
		}
	}
	if len(Keys()) != len(Fields())+2 {
		t.Error("Keys and Fields disagree")
	}
}

// S0-44: a glob over threads, the first match wins, none is none.
func TestVia(t *testing.T) {
	c := Default()
	if via, ok := c.Via("threads/peers/tg-bob"); !ok || via != "xgw" {
		t.Errorf("key absent: %q, %v", via, ok)
	}
	if _, ok := c.Via("inbox"); ok {
		t.Error("the inbox is not a conversation")
	}
	c.Outbound = []Outbound{{"peers/tg-*", "hook"}, {"threads/peers/**", "xgw"}, {"**/main", "console"}}
	for id, want := range map[string]string{
		"threads/peers/tg-bob": "hook", "threads/peers/wa-bob": "xgw", "threads/channels/tg": "",
		"threads/main": "console", "threads/peers/tg-bob/sub": "xgw",
	} {
		if via, ok := c.Via(id); via != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", id, via, ok, want)
		}
	}
	// Many stars do not make it slow: this would not end if they did.
	c.Outbound = []Outbound{{strings.Repeat("**/", 150) + "x", "xgw"}}
	if _, ok := c.Via("threads/" + strings.Repeat("a/", 200) + "y"); ok {
		t.Error("matched")
	}
}

func TestQuoteIsText(t *testing.T) {
	for in, want := range map[string]string{"gpt-4o": "gpt-4o", "true": "'true'", "No": "'No'", "12": "'12'", "": "''", "a: b": "'a: b'", "it's": "'it''s'", "a\nb": `"a\nb"`, "-x": "'-x'"} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{24 * time.Hour: "24h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Second: "1s", 0: "0s", time.Hour + time.Second: "1h0m1s"} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// A3: the registry and the deliverer judge by one rule which replies leave: a pattern with
// threads/ counted here and not there, so that such a reply was due and then skipped.
func TestViaIsTheRuleOfTheDeliverer(t *testing.T) {
	ids := []string{"inbox", "threads/main", "threads/peers/a", "threads/peers/a/b", "threads/channels/c"}
	for _, pattern := range []string{"**", "*", "peers/**", "threads/peers/**", "threads/**", "**/b", "peers/*", "main"} {
		c := Default()
		c.Outbound = []Outbound{{pattern, "xgw"}}
		s := channel.Settings{Outbound: []channel.Rule{{ThreadPattern: pattern, Via: "xgw"}}}
		for _, id := range ids {
			via, ok := c.Via(id)
			sent, sends := channel.Choose(s, id, "", nil)
			if via != sent || ok != sends {
				t.Errorf("%s for %s: due %v, sent %v", pattern, id, ok, sends)
			}
		}
	}
}
