package registry_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// accountWith is a home whose account wh takes messages of anyone, with further keys.
func accountWith(keys string) string {
	return "channels:\n  wh: {type: webhook, dm: open, groups: {allow: ['*'], mode: mention}, " + keys + "}\n"
}

// S2-103, S2-17, S2-19: what is beyond the rate of an account is refused with a notice and the time to wait, and stored nowhere.
// A repeat is a repeat, context has no rate, and a person can always stop what runs. The next message goes by the rate
// that the settings have then.
func TestRateOfAccount(t *testing.T) { backendtest.Each(t, testRateOfAccount) }

func testRateOfAccount(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, accountWith("rate: 1"))
	for n := range 2 {
		if got := accept(t, w, inbound(fmt.Sprint(n), "ann", "hello")); got.GetOutcome() != accepted {
			t.Fatalf("message %d: %v", n, got)
		}
	}
	got := accept(t, w, inbound("2", "bob", "hello"))
	if wait := got.GetRetryAfter().AsDuration(); got.GetOutcome() != refused || got.GetReason() != fault.QuotaExceeded || !got.GetNotify() || wait <= 0 || wait > time.Minute {
		t.Errorf("beyond the rate: %v", got)
	}
	if got := accept(t, w, inbound("1", "ann", "hello")); got.GetOutcome() != duplicate {
		t.Errorf("a repeat: %v", got)
	}
	if got := accept(t, w, inGroup("3", "ann", "talk")); got.GetOutcome() != noted {
		t.Errorf("context: %v", got)
	}
	stop := inbound("4", "ann", "/stop")
	stop.Command = &registryv1.ChatCommand{Name: "stop"}
	if got := accept(t, w, stop); got.GetOutcome() != accepted {
		t.Errorf("a stop: %v", got)
	}
	missed := inbound("5", "ann", "hello")
	missed.SentAt = timestamppb.New(time.Now().Add(-time.Minute))
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{
		Account: "wh", Messages: []*registryv1.InboundMessage{missed}, ConnectedAt: timestamppb.Now(),
	})
	if got := backendtest.Must(t, r, err).GetResults()[0]; got.GetOutcome() != accepted {
		t.Errorf("written before the account received: %v", got)
	}
	if n := len(inboxOf(t, w, "main")); n != 4 {
		t.Errorf("%d are stored, not 4", n)
	}
	setHome(t, o, w, accountWith("rate: 0"))
	if got := accept(t, w, inbound("2", "bob", "hello")); got.GetOutcome() != accepted {
		t.Errorf("without a rate: %v", got)
	}
}

// S2-103, S2-17: a command that the gateway answers has the rate of the account, as messages have, and no decision of an
// owner is refused for it.
func TestRateOfCommands(t *testing.T) { backendtest.Each(t, testRateOfCommands) }

func testRateOfCommands(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, accountWith("rate: 1")+"owners: ['webhook:boss']\n")
	ask := func(peer, command string) *registryv1.AcceptedMessage {
		t.Helper()
		m := inbound("asked-"+command, peer, "/"+command)
		m.Command = &registryv1.ChatCommand{Name: command}
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{m}, Check: true})
		return backendtest.Must(t, r, err).GetResults()[0]
	}
	for _, command := range []string{"approve", "deny", "answer", "pair", "stop"} { // none of them counts
		if got := ask("boss", command); got.GetOutcome() != accepted {
			t.Errorf("/%s of an owner: %v", command, got)
		}
	}
	for _, command := range []string{"usage", "answer"} {
		if got := ask("ann", command); got.GetOutcome() != accepted {
			t.Errorf("/%s within the rate: %v", command, got)
		}
	}
	for _, command := range []string{"usage", "status", "answer"} {
		if got := ask("ann", command); got.GetOutcome() != refused || got.GetReason() != fault.QuotaExceeded || !got.GetNotify() || got.GetRetryAfter().AsDuration() <= 0 {
			t.Errorf("/%s beyond the rate: %v", command, got)
		}
	}
	if got := accept(t, w, inbound("1", "bob", "hello")); got.GetOutcome() != refused {
		t.Errorf("a message after the commands: %v", got)
	}
	for _, command := range []string{"approve", "deny", "answer", "pair", "stop"} {
		if got := ask("boss", command); got.GetOutcome() != accepted {
			t.Errorf("/%s of an owner beyond the rate: %v", command, got)
		}
	}
}

// S2-19: a bot starts no turn unless it is listed or the account takes bots as people; then two that answer each other come
// to an end at the rate of the account, and a person still gets through after it.
func TestBotsOfAccount(t *testing.T) { backendtest.Each(t, testBotsOfAccount) }

func testBotsOfAccount(t *testing.T, o backendtest.Options) {
	const rate = 5
	w := o.Start(t, registry.Config{})
	w.Create("main")
	bot := func(m *registryv1.InboundMessage) *registryv1.InboundMessage {
		m.Bot, m.Mentioned = true, true
		return m
	}
	for _, c := range []struct {
		bots      string
		dm, group registryv1.AcceptOutcome
	}{{"false", refused, noted}, {"true", accepted, accepted}} {
		setHome(t, o, w, accountWith(fmt.Sprintf("bots: %s, rate: %d", c.bots, rate)))
		if got := accept(t, w, bot(inbound("d"+c.bots, "robot", "hello"))); got.GetOutcome() != c.dm {
			t.Errorf("bots: %s: a direct message: %v", c.bots, got)
		}
		if got := accept(t, w, bot(inGroup("g"+c.bots, "robot", "hello"))); got.GetOutcome() != c.group {
			t.Errorf("bots: %s: in a group: %v", c.bots, got)
		}
	}
	begun, taken := time.Now(), 2
	for n := range 20 * rate { // each answer is a message of the other bot
		got := accept(t, w, bot(inGroup(fmt.Sprint("loop", n), "robot", "hello again")))
		switch {
		case got.GetOutcome() == accepted:
			taken++
		case got.GetReason() != fault.QuotaExceeded:
			t.Fatalf("message %d: %v", n, got)
		}
	}
	if most := 2*rate + 1 + int(time.Since(begun).Minutes()*rate); taken < rate || taken > most { // at once, and what the time has added
		t.Errorf("%d messages of bots were taken at a rate of %d", taken, rate)
	}
}

// S2-16: data of the platform are in the event, as they came, and bounded: of more than 32, or of more than 8 KiB,
// nothing is stored, and a message that an event cannot hold with them is stored without them.
func TestExtra(t *testing.T) { backendtest.Each(t, testExtra) }

func testExtra(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, accountWith("rate: 0"))
	m := inbound("1", "ann", "hello")
	m.Extra = map[string]string{"irc.modes": "+o", "long": strings.Repeat("ä", 4096)}
	for n := len(m.GetExtra()); n < 32; n++ {
		m.Extra[fmt.Sprint("field ", n)] = "<x>"
	}
	if got := accept(t, w, m); got.GetOutcome() != accepted {
		t.Fatal(got)
	}
	var stored struct{ Extra map[string]string }
	if err := json.Unmarshal([]byte(inboxOf(t, w, "main")[0].GetContent()), &stored); err != nil || !maps.Equal(stored.Extra, m.GetExtra()) {
		t.Errorf("%v: %d fields are stored", err, len(stored.Extra))
	}
	for name, value := range map[string]string{"one more": "x", "long": strings.Repeat("x", 8193), strings.Repeat("n", 129): "x", "": "x"} {
		bad := inbound("2", "ann", "hello")
		bad.Extra = maps.Clone(m.GetExtra())
		if name != "one more" {
			delete(bad.GetExtra(), "long")
		}
		bad.Extra[name] = value
		if _, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{bad}}); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if n := len(inboxOf(t, w, "main")); n != 1 {
		t.Errorf("%d are stored", n)
	}
	// Control characters take six bytes each in an event.
	long := inbound("3", "ann", strings.Repeat("\x01", 100_000))
	long.Extra = map[string]string{}
	for n := range 32 {
		long.Extra[fmt.Sprint("field ", n)] = strings.Repeat("\x01", 8192)
	}
	if got := accept(t, w, long); got.GetOutcome() != accepted {
		t.Fatal(got)
	}
	var bounded struct {
		Text  string
		Extra map[string]string
	}
	content := inboxOf(t, w, "main")[1].GetContent()
	if err := json.Unmarshal([]byte(content), &bounded); err != nil || len(content) > thread.MaxEvent || bounded.Text != long.GetText() || bounded.Extra != nil {
		t.Errorf("%v: %d bytes, %d of the text, %d fields", err, len(content), len(bounded.Text), len(bounded.Extra))
	}
}

// S2-17: a message that is older than catchup when the account receives again becomes context, a direct one and a
// command, too, and precedes the next message. It is stored once, whatever the setting is when it comes again.
func TestCatchUp(t *testing.T) { backendtest.Each(t, testCatchUp) }

func testCatchUp(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	now := time.Now().Truncate(time.Second)
	send := func(m *registryv1.InboundMessage, before time.Duration, check bool) registryv1.AcceptOutcome {
		m.SentAt = timestamppb.New(now.Add(-before))
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{
			Account: "wh", Messages: []*registryv1.InboundMessage{m}, ConnectedAt: timestamppb.New(now), Check: check,
		})
		return backendtest.Must(t, r, err).GetResults()[0].GetOutcome()
	}
	command := inbound("command", "ann", "/new hello")
	command.Command = &registryv1.ChatCommand{Name: "new", Args: "hello"}
	mention := inGroup("mention", "ann", "you there?")
	mention.Mentioned = true
	for _, c := range []struct {
		keys   string
		m      *registryv1.InboundMessage
		before time.Duration
		want   registryv1.AcceptOutcome
	}{
		{"rate: 0", inbound("1", "ann", "a day old"), 24 * time.Hour, accepted},
		{"rate: 0", inbound("2", "ann", "older"), 24*time.Hour + time.Second, noted},
		{"rate: 0", inbound("2", "ann", "older"), 24*time.Hour + time.Second, duplicate},
		{"rate: 0", command, 25 * time.Hour, noted},
		{"rate: 0", mention, 25 * time.Hour, noted},
		{"catchup: 168h", inbound("2", "ann", "older"), 24*time.Hour + time.Second, duplicate},
		{"catchup: 168h", inbound("3", "bob", "a week old"), 168 * time.Hour, accepted},
		{"catchup: 168h", inbound("4", "bob", "older"), 168*time.Hour + time.Second, noted},
		{"catchup: 0s", inbound("3", "bob", "a week old"), 168 * time.Hour, duplicate},
		{"catchup: 0s", inbound("5", "bob", "missed"), time.Second, noted},
		{"catchup: 0s", inbound("6", "bob", "now"), 0, accepted},
	} {
		setHome(t, o, w, accountWith(c.keys))
		if c.want == noted {
			if got := send(c.m, c.before, true); got != noted {
				t.Errorf("%s: %q would be %v", c.keys, c.m.GetText(), got)
			}
		}
		if got := send(c.m, c.before, false); got != c.want {
			t.Errorf("%s: %q, sent %v before: %v, not %v", c.keys, c.m.GetText(), c.before, got, c.want)
		}
	}
	if n := len(inboxOf(t, w, "main")); n != 3 {
		t.Errorf("%d are stored, not 3", n)
	}
	if got := heard(claimed(t, w, "main")[0]); !slices.Equal(got, []string{"older", "/new hello"}) {
		t.Errorf("before the next message: %q", got)
	}
}

// A message whose clock is ahead of ours has our time, and the time that it states as it was given.
func TestSentInTheFuture(t *testing.T) { backendtest.Each(t, testSentInTheFuture) }

func testSentInTheFuture(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, accountWith("rate: 0"))
	type times struct {
		CreatedAt string `json:"created_at"`
		SentAt    string `json:"sent_at"`
	}
	began := time.Now()
	for n, c := range []struct {
		sent  time.Time
		given string
	}{
		{time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC), "2099-01-02T03:04:05.000Z"},
		{time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC), ""},
	} {
		m := inbound(fmt.Sprint(n), "ann", "hello")
		m.SentAt = timestamppb.New(c.sent)
		if got := accept(t, w, m); got.GetOutcome() != accepted {
			t.Fatal(got)
		}
		list := inboxOf(t, w, "main")
		var at times
		if err := json.Unmarshal([]byte(list[len(list)-1].GetContent()), &at); err != nil {
			t.Fatal(err)
		}
		want := c.sent
		if created := thread.ParseStamp(at.CreatedAt); c.given != "" {
			if want = created; created.Before(began.Add(-time.Millisecond)) || created.After(time.Now()) {
				t.Errorf("created at %s", at.CreatedAt)
			}
		}
		if at.SentAt != c.given || thread.Stamp(want) != at.CreatedAt {
			t.Errorf("sent at %s: %+v", c.sent, at)
		}
	}
}

// S2-43: how many messages of a person the prompt of a direct conversation has is a setting of its account, and
// of the person before it.
func TestHistoryLimit(t *testing.T) { backendtest.Each(t, testHistoryLimit) }

func testHistoryLimit(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	for _, c := range []struct {
		keys string
		m    *registryv1.InboundMessage
		want int32
	}{
		{"rate: 0", inbound("1", "ann", "x"), 50},
		{"dm_history_limit: 1, dms: {bob: {history_limit: 1000}}", inbound("2", "ann", "x"), 1},
		{"dm_history_limit: 1, dms: {bob: {history_limit: 1000}}", inbound("3", "bob", "x"), 1000},
		{"dm_history_limit: 1", func() *registryv1.InboundMessage { m := inGroup("4", "bob", "x"); m.Mentioned = true; return m }(), 0},
	} {
		setHome(t, o, w, accountWith(c.keys))
		got := accept(t, w, c.m)
		if got.GetOutcome() != accepted {
			t.Fatal(got)
		}
		turns := claimed(t, w, "main")
		if n := turns[len(turns)-1].GetConfig().GetHistoryTurns(); n != c.want {
			t.Errorf("%s: the turn of %s has %d, not %d", c.keys, c.m.GetPeerId(), n, c.want)
		}
		r, err := w.Turns.GetTurnConfig(t.Context(), &registryv1.GetTurnConfigRequest{AgentId: "main", ThreadId: got.GetThreadId()})
		if n := backendtest.Must(t, r, err).GetConfig().GetHistoryTurns(); n != c.want {
			t.Errorf("%s: the conversation of %s has %d, not %d", c.keys, c.m.GetPeerId(), n, c.want)
		}
	}
}
