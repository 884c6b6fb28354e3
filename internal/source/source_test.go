package source

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/fault"
)

var seeds = []string{
	SelfText, Console,
	"external:tui:tui-main:dm:alice:alice",
	"external:telegram:tg-main:group:grp-123/topic-456:alice",
	"external:telegram:tg-1:group:-100:42",
	"external:matrix:mx:group:!room:example.org:@ann:example.org",
	"external:tui:x:dm:p",
	"external:Telegram:x:dm:p:p",
	"internal:dm:default:warden",
	"internal:agent:admin",
	"internal:peer:agent2",
	"internal:admin",
	"a", "", ":", "external:", "internal:::", "external::::::", "self:x", "selfish",
	"external:tui:x:dm:p:\x00", "external:tui:x:dm:p:\xff", "external:tui:x:dm:../..:..%2f",
}

// TestParse covers S0-66, S0-67, S0-68.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Address
	}{
		{"self", Address{Kind: Self}},
		{Console, Address{Kind: External, ChannelType: "console", ChannelID: "cli", SessionType: DM, SessionID: "cli", PeerID: "cli"}},
		{"external:telegram:tg-main:group:grp-123/topic-456:alice", Address{
			Kind: External, ChannelType: "telegram", ChannelID: "tg-main", SessionType: Group, SessionID: "grp-123/topic-456", PeerID: "alice",
		}},
		{"external:telegram:tg-1:group:-100:42", Address{
			Kind: External, ChannelType: "telegram", ChannelID: "tg-1", SessionType: Group, SessionID: "-100", PeerID: "42",
		}},
		{"internal:dm:default:warden", Agent("warden")},
	} {
		got, err := Parse(c.in)
		if err != nil || got != c.want || got.String() != c.in || got.Validate() != nil {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", c.in, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"":                           "empty",
		"a":                          "begins with none",
		"Self":                       "begins with none",
		"self:x":                     "begins with none",
		"external:tui:x:dm:p":        "6 parts, this has 5",
		"external:tui:x:dm:p:p:p":    "6 parts, this has 7",
		"internal:agent:admin":       "4 parts, this has 3",
		"external:Telegram:x:dm:p:p": "channel type",
		"external::x:dm:p:p":         "channel type",
		"external:-x:x:dm:p:p":       "channel type",
		"external:tui::dm:p:p":       "channel id",
		"external:tui:x:thread:p:p":  "session type",
		"external:tui:x:dm::p":       "session id",
		"external:tui:x:dm:p:":       "peer id",
		"internal::default:a":        "conversation type",
		"internal:dm::a":             "conversation id",
		"internal:dm:default:":       "agent id",
		"external:tui:x:dm:p:p\n":    "control",
		"external:tui:x:dm:p:\u0085": "control",
		"external:tui:x:dm:p:\xff":   "UTF-8",
		"external:tui:x:dm:p:" + strings.Repeat("p", MaxBytes): "longer than 1024",
	} {
		_, err := Parse(in)
		if !fault.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), why) || strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("Parse(%q) = %v, want INVALID_ARGUMENT with %q", in, err, why)
		}
	}
	for _, a := range []Address{{}, {Kind: Self, PeerID: "x"}, {Kind: Internal, ConvType: DM, ConvID: "d", AgentID: "a:b"}, {Kind: Internal, ConvType: DM, ConvID: "d", AgentID: "a", PeerID: "p"}} {
		if a.Validate() == nil {
			t.Errorf("Validate(%+v) accepts", a)
		}
	}
}

func TestParseLenient(t *testing.T) {
	ext := func(ct, ch, st, s, p string) Address {
		return Address{Kind: External, ChannelType: ct, ChannelID: ch, SessionType: st, SessionID: s, PeerID: p}
	}
	in := func(ct, c, a string) Address {
		return Address{Kind: Internal, ConvType: ct, ConvID: c, AgentID: a}
	}
	for _, c := range []struct {
		in      string
		want    Address
		missing []string
	}{
		{"self", Address{Kind: Self}, nil},
		{"external:telegram:tg-1:group:-100:42", ext("telegram", "tg-1", "group", "-100", "42"), nil},
		{"internal:agent:admin", in("agent", DefaultConv, "admin"), []string{FieldConvID}},
		{"internal:peer:agent2", in("peer", DefaultConv, "agent2"), []string{FieldConvID}},
		{"internal:admin", in("", DefaultConv, "admin"), []string{FieldConvType, FieldConvID}},
		{"internal:dm:a:b:c", in("dm", "a:b", "c"), []string{FieldAmbiguous}},
		{"external:tui:x:dm:p", ext("tui", "x", "dm", "", "p"), []string{FieldSessionID}},
		{"external:tui:x:s1:p", ext("tui", "x", "", "s1", "p"), []string{FieldSessionType}},
		{"external:tui:x:p", ext("tui", "x", "", "", "p"), []string{FieldSessionType, FieldSessionID}},
		{"external:TUI::thread:s:p", ext("TUI", "", "thread", "s", "p"), []string{FieldChannelType, FieldChannelID, FieldSessionType}},
		{"external:mx:m:dm:!r:o:@a:o", ext("mx", "m", "dm", "!r:o:@a", "o"), []string{FieldAmbiguous}},
	} {
		got, missing, err := ParseLenient(c.in)
		if d := cmp.Diff(c.want, got); err != nil || d != "" || !slices.Equal(missing, c.missing) {
			t.Errorf("ParseLenient(%q): missing %v, err %v\n%s", c.in, missing, err, d)
		}
	}
	for _, s := range []string{"", "a", "internal", "internal:", "internal:dm:default:", "external:tui:x", "external:a:b:c:d:", "external:tui:x:dm:p:\x00", strings.Repeat("x", 4096)} {
		if a, _, err := ParseLenient(s); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("ParseLenient(%q) = %+v, %v", s, a, err)
		}
	}
}

func TestReadings(t *testing.T) {
	got := Readings("external:mx:m:group:!r:o:@a:o", 100)
	var peers []string
	for _, a := range got {
		peers = append(peers, a.PeerID)
		if a.String() != "external:mx:m:group:!r:o:@a:o" {
			t.Errorf("reading %+v prints %q", a, a)
		}
	}
	if d := cmp.Diff([]string{"o:@a:o", "@a:o", "o"}, peers); d != "" {
		t.Error(d)
	}
	if n := len(Readings("external:x"+strings.Repeat(":dm", 300), 50)); n != 50 {
		t.Errorf("%d readings, want the cap", n)
	}
	if Readings("internal:dm:default:a", 9) != nil || Readings("external:x:\x00:dm:a:a", 9) != nil || len(Readings(Console, 9)) != 1 {
		t.Error("readings of other addresses")
	}
}

// TestRoundTrip is the property of S0-66..68: String and Parse are inverse.
func TestRoundTrip(t *testing.T) {
	id := rapid.StringN(1, 24, 80).Filter(func(s string) bool { return unfit(s) == "" && !strings.Contains(s, ":") })
	rapid.Check(t, func(t *rapid.T) {
		a := Address{Kind: Self}
		switch rapid.SampledFrom([]Kind{External, Internal, Self}).Draw(t, "kind") {
		case External:
			a = Address{
				Kind: External, ChannelType: rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,12}`).Draw(t, "type"),
				ChannelID: id.Draw(t, "channel"), SessionType: rapid.SampledFrom([]string{DM, Group, Channel}).Draw(t, "session type"),
				SessionID: id.Draw(t, "session"), PeerID: id.Draw(t, "peer"),
			}
		case Internal:
			a = Address{Kind: Internal, ConvType: rapid.SampledFrom([]string{DM, "task"}).Draw(t, "conv type"), ConvID: id.Draw(t, "conv"), AgentID: id.Draw(t, "agent")}
		}
		if err := a.Validate(); err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		got, missing, err := ParseLenient(a.String())
		if err != nil || got != a || missing != nil {
			t.Fatalf("%q read as %+v, missing %v, %v", a, got, missing, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err == nil && (a.String() != s || a.Validate() != nil) {
			t.Errorf("%q parses to %+v, which prints %q", s, a, a)
		}
		l, missing, lerr := ParseLenient(s)
		switch {
		case err == nil && (lerr != nil || l != a || missing != nil):
			t.Errorf("lenient reads the exact %q as %+v, %v, %v", s, l, missing, lerr)
		case err != nil && lerr == nil && len(missing) == 0 && (unfit(s) == "" || l.String() != s || l.problem() != ""):
			// The exact form, but for its length or control characters in it, lacks nothing.
			t.Errorf("lenient reads %q as %+v and reports nothing", s, l)
		case lerr == nil && l.Kind == External && l.PeerID == "", lerr == nil && l.Kind == Internal && l.AgentID == "":
			t.Errorf("%q: no writer in %+v", s, l)
		}
		for _, r := range Readings(s, 20) {
			if r.String() != s {
				t.Errorf("reading %+v of %q prints %q", r, s, r)
			}
		}
	})
}

// SECURITY S8: what people call themselves is read, whatever it is; what no
// message could carry on is not.
func TestHostileIDs(t *testing.T) {
	for _, id := range []string{"a\nb", "\x1b[2J\u0085", "; $(id) '\"`", "../../x", strings.Repeat("\U0001F600", 200), "a b", "-x", "\u202e"} {
		want := Address{Kind: External, ChannelType: "tui", ChannelID: "main", SessionType: DM, SessionID: id, PeerID: id}
		got, missing, err := ParseLenient(want.String())
		if err != nil || missing != nil || got != want {
			t.Errorf("%q: %+v, %v, %v", id, got, missing, err)
		}
	}
	for _, s := range []string{"external:tui:main:dm:a:a\x00", "external:tui:main:dm:a:\xff", "external:tui:main:dm:a:" + strings.Repeat("x", MaxLenient)} {
		if _, _, err := ParseLenient(s); err == nil {
			t.Errorf("%.40q is read", s)
		}
	}
}
