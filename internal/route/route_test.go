package route

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
)

func tuple(channelType, channelID, peerID string) Tuple {
	return Tuple{ChannelType: channelType, ChannelID: channelID, PeerID: peerID}
}

// TestThread covers S0-31, S0-91, S0-92, S0-93, S0-95.
func TestThread(t *testing.T) {
	warden := tupleOf(source.Agent("warden"))
	for _, c := range []struct {
		mode Mode
		t    Tuple
		want string
	}{
		{PerPeer, tuple("telegram", "telegram-main", "user_42"), "threads/peers/telegram-main-user_42"},
		{PerPeer, tuple("tui", "tui-main", "alice"), "threads/peers/tui-main-alice"},
		{PerPeer, tuple("x", "a-b", "c"), "threads/peers/a-b-c"},
		{PerPeer, tuple("x", "a", "b-c"), "threads/peers/a-b%2Dc"},
		{PerPeer, tuple("x", "..", ".."), "threads/peers/%2E%2E-%2E%2E"},
		{PerPeer, tuple("x", "tg", "../../etc"), "threads/peers/tg-..%2F..%2Fetc"},
		{PerPeer, warden, "threads/peers/internal-warden"},
		{PerPeer, tupleOf(source.Agent("my-agent")), "threads/peers/internal-my%2Dagent"},
		{PerPeer, tuple("x", "internal", "warden"), "threads/peers/%69nternal-warden"},
		{PerPeer, tuple("internal", "internal", "warden"), "threads/peers/%69nternal-warden"},
		{PerPeer, tuple("console", "internal", "warden"), "threads/peers/%69nternal-warden"},
		{PerPeer, tuple("console", "cli", "cli"), "threads/peers/cli-cli"},
		{PerPeer, tuple("tui", "cli", "cli"), "threads/peers/%63li-cli"},
		{"", tuple("tui", "x", "p"), "threads/peers/x-p"},
		{PerChannel, tuple("tui", "x", "p"), "threads/channels/x"},
		{PerChannel, tuple("tui", "x", "q"), "threads/channels/x"},
		{PerChannel, tuple("tui", "..", "q"), "threads/channels/%2E%2E"},
		{PerChannel, tuple("tui", "internal", "q"), "threads/channels/%69nternal"},
		{PerChannel, warden, "threads/channels/internal"},
		{PerAgent, tuple("tui", "x", "p"), "threads/main"},
		{PerAgent, warden, "threads/main"},
	} {
		if got := Thread(c.mode, c.t); got != c.want {
			t.Errorf("Thread(%q, %+v) = %q, want %q", c.mode, c.t, got, c.want)
		}
	}
}

func TestParseMode(t *testing.T) {
	for in, want := range map[string]Mode{"": PerPeer, "per-peer": PerPeer, "per-channel": PerChannel, "per-agent": PerAgent} {
		if got, err := ParseMode(in); got != want || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v", in, got, err)
		}
	}
	if _, err := ParseMode("per-moon"); !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("ParseMode(per-moon): %v", err)
	}
}

// TestFileNames covers S0-27, S0-29, S0-30.
func TestFileNames(t *testing.T) {
	p := tuple("tui", "tui-main", "a/b:..")
	id := Thread(PerPeer, p)
	for got, want := range map[string]string{
		SessionFile("threads/main"):                   "threads%2Fmain.jsonl",
		SessionFile("threads/peers/tui-main-alice"):   "threads%2Fpeers%2Ftui-main-alice.jsonl",
		SessionFile(id):                               "threads%2Fpeers%2Ftui-main-a%2Fb:...jsonl",
		MemoryUserFile(p):                             "user-tui-main-a%2Fb:...md",
		MemoryThreadFile("threads/channels/tui-main"): "thread-threads%2Fchannels%2Ftui-main.md",
		MemoryUserFile(tupleOf(source.Agent("a"))):    "user-internal-a.md",
		MemoryUserFile(tuple("tui", "internal", "a")): "user-%69nternal-a.md",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// A thread that somebody nested by hand must not meet one of ours.
	seen := map[string]string{}
	for _, id := range []string{
		"threads/peers/x-a%2Fb", "threads/peers/x-a/b", "threads/peers%2Fx-a%2Fb", "tasks/a/b", "tasks/a%2Fb", "tasks%2Fa/b",
		"threads/peers/" + strings.Repeat("a", 100), "threads/peers/" + strings.Repeat("a", 101) + "-b",
		strings.TrimSuffix(strings.ReplaceAll(SessionFile("threads/peers/"+strings.Repeat("a", 110)), "%2F", "/"), ".jsonl"),
		"threads/peers/" + strings.Repeat("a", 110),
	} {
		name := SessionFile(id)
		if seen[name] != "" || strings.Contains(name, "/") || len(name) > 255 {
			t.Errorf("%q and %q share %q", id, seen[name], name)
		}
		seen[name] = id
	}
}

// The names of past digests are told apart, also where the id of one thread continues that of
// another.
func TestMemoryPastFile(t *testing.T) {
	const mark = "0123456789ab"
	threads := []string{"threads/peers/main-bob", "threads/peers/main-bob.7", "threads/peers/main-bob.7." + mark, "threads/main", "threads/peers/" + strings.Repeat("x", 400)}
	for i, one := range threads {
		for _, name := range []string{MemoryPastFile(one, 5, ""), MemoryPastFile(one, 0, mark)} {
			if len(name) > 200 {
				t.Errorf("%s has %d bytes", name, len(name))
			}
			for j, other := range threads {
				if IsMemoryPastFile(other, name) != (i == j) {
					t.Errorf("%s is of %s: %v", name, other, i != j)
				}
			}
		}
	}
	for _, name := range []string{"thread-threads%2Fmain.md", "thread-threads%2Fmain.5", "thread-threads%2Fmain.x.md", "thread-threads%2Fmain.5.md.md", "thread-threads%2Fmain.5.short.md", "agent.md"} {
		if IsMemoryPastFile("threads/main", name) {
			t.Errorf("%s is one", name)
		}
	}
}
