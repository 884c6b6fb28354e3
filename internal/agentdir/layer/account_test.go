package layer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/channel"
)

// S2-17, S2-19, S2-43: the numbers of an account at their bounds, and what is next to them.
func TestBoundsOfAccounts(t *testing.T) {
	const types = "{type: %s, %s: %s}"
	for _, c := range []struct {
		kind, key string
		good, bad []string
	}{
		{"telegram, token: \"env:X\"", "max_chars", []string{"64", "4096"}, []string{"63", "4097", "0", "-1", "x"}},
		{"discord, token: \"env:X\"", "max_chars", []string{"64", "2000"}, []string{"2001"}},
		{"slack", "max_chars", []string{"4000"}, []string{"4001"}},
		{"webhook", "max_chars", []string{"64", "100000"}, []string{"63", "100001"}},
		{"webhook", "rate", []string{"0", "1", "100000"}, []string{"-1", "100001", "1.5", "fast"}},
		{"webhook", "media_max_mib", []string{"0", "50"}, []string{"-1", "51"}},
		{"webhook", "catchup", []string{"0s", "168h"}, []string{"-1s", "169h", "7d", "5"}},
		{"webhook", "dm_history_limit", []string{"1", "1000"}, []string{"0", "1001"}},
		{"webhook", "dms", []string{"{\"7\": {history_limit: 1}}", "{\"U7 x\": {history_limit: 1000}}"}, []string{"{\"7\": {history_limit: 0}}", "{\"7\": {history_limit: 1001}}", "{\"7\": {}}", "{\"7\": 5}", "[7]", "{\"7\": {limit: 5}}"}},
		{"telegram, token: \"env:X\"", "reply_to", []string{"\"off\"", "first", "all"}, []string{"last", "true"}},
		{"slack", "reply_to", nil, []string{"first"}},
		{"webhook", "reply_to", nil, []string{"first"}},
	} {
		for _, value := range c.good {
			if _, err := ReadHome(home("channels: {a: " + fmt.Sprintf(types, c.kind, c.key, value) + "}\n")); err != nil {
				t.Errorf("%s: %s: %v", c.key, value, err)
			}
		}
		for _, value := range c.bad {
			_, err := ReadHome(home("channels: {a: " + fmt.Sprintf(types, c.kind, c.key, value) + "}\n"))
			if err == nil || !strings.Contains(err.Error(), "theclaw.yaml:1:") || !strings.Contains(err.Error(), strings.TrimSuffix(c.key, "s")) {
				t.Errorf("%s: %s of %s: %v", c.key, value, c.kind, err)
			}
		}
	}
}

func TestReadAccounts(t *testing.T) {
	got, err := ReadHome(home(`channels:
  tg: {type: telegram, token: "env:X", maxChars: 100, rate: 5, media_max_mib: 1, reply_to: all, catchup: 2h, dm_history_limit: 7, dms: {"31": {historyLimit: 100}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := newAccount("tg")
	want.Definition = channel.Definition{Type: "telegram", Token: "env:X", ReplyTo: "all"}
	want.MaxChars, want.Rate, want.MediaMaxMiB, want.CatchUp, want.DMHistoryLimit, want.DMs = 100, 5, 1, 2*time.Hour, 7, map[string]int{"31": 100}
	if d := cmp.Diff([]Account{want}, got.Accounts); d != "" {
		t.Error(d)
	}
	n, _ := want.HistoryOf("31")
	if other, set := want.HistoryOf("32"); n != 100 || other != 7 || !set {
		t.Errorf("%d and %d messages", n, other)
	}
}
