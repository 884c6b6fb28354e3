package route

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
)

// TestGoldenInbox routes the event that the real gateway pushed.
func TestGoldenInbox(t *testing.T) {
	line, err := os.ReadFile("testdata/20-inbox-event.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Source, Content string }
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatal(err)
	}
	got, rc, err := Of(e.Source, e.Content)
	want := Tuple{ChannelType: "tui", ChannelID: "tui-main", PeerID: "alice", SessionType: "dm", SessionID: "alice"}
	if err != nil || got != want || Thread(PerPeer, got) != "threads/peers/tui-main-alice" {
		t.Errorf("Of = %+v, %v", got, err)
	}
	if string(rc) != `{"channel_type":"external","channel_id":"tui-main","peer_id":"alice","session_id":"alice"}` {
		t.Errorf("reply_context %s", rc)
	}
}

// TestOf covers S0-123 and the forged-source row of SECURITY.
func TestOf(t *testing.T) {
	const tui = "external:tui:tui-main:dm:alice:alice"
	const built = `{"channel_type":"external","channel_id":"tui-main","peer_id":"alice","session_id":"alice"}`
	const matrix = "external:matrix:mx:group:!r:o:@ann:o"
	for _, c := range []struct{ name, src, content, thread, want string }{
		{"plain text", tui, "not json 你好", "tui-main-alice", built},
		{"array", tui, `["channel_id"]`, "tui-main-alice", built},
		{"no fields", tui, `{}`, "tui-main-alice", built},
		{"null context", tui, `{"reply_context": null}`, "tui-main-alice", built},
		{"null and empty fields", tui, `{"peer_id":null,"session_id":""}`, "tui-main-alice", built},
		{"other case is another key", tui, `{"Peer_ID":"bob"}`, "tui-main-alice", built},
		{"visibility", tui, `{"visibility":"private"}`, "tui-main-alice", strings.TrimSuffix(built, "}") + `,"visibility":"private"}`},
		{
			"copied byte for byte", tui, `{"text":"x","reply_context": { "peer_id":"alice", "x":[1.0,"\u00e9\u2028 <"], "channel_type":"external"} }`, "tui-main-alice",
			`{ "peer_id":"alice", "x":[1.0,"\u00e9\u2028 <"], "channel_type":"external"}`,
		},
		{"context with the channel's own type", tui, `{"channel_type":"tui","reply_context":{"channel_type":"external"}}`, "tui-main-alice", `{"channel_type":"external"}`},
		{"recorded group", "external:telegram:tg-1:group:-100:42", "", "tg-1-42", `{"channel_type":"external","channel_id":"tg-1","peer_id":"42","session_id":"-100"}`},
		{"console", source.Console, `{"text":"hi"}`, "cli-cli", `{"channel_type":"console","channel_id":"cli","peer_id":"cli","session_id":"cli"}`},
		{"colons told apart by the content", matrix, `{"channel_id":"mx","peer_id":"@ann:o","session_id":"!r:o"}`, "mx-@ann:o", `{"channel_type":"external","channel_id":"mx","peer_id":"@ann:o","session_id":"!r:o"}`},
		{"colons told apart by the peer", matrix, `{"peer_id":"@ann:o"}`, "mx-@ann:o", `{"channel_type":"external","channel_id":"mx","peer_id":"@ann:o","session_id":"!r:o"}`},
		{"session from the content", "external:tui:x:dm:p", `{"session_id":"s"}`, "x-p", `{"channel_type":"external","channel_id":"x","peer_id":"p","session_id":"s"}`},
		{"channel from the content", "external:tui::dm:s:p", `{"channel_id":"x"}`, "x-p", `{"channel_type":"external","channel_id":"x","peer_id":"p","session_id":"s"}`},
		{"quotes and separators", "external:tui:x:dm:s:\"\u2028<", "", "x-%22%E2%80%A8%3C", "{\"channel_type\":\"external\",\"channel_id\":\"x\",\"peer_id\":\"\\\"\u2028<\",\"session_id\":\"s\"}"},
		{"internal", "internal:dm:default:warden", "hi", "internal-warden", `{"channel_type":"internal","channel_id":"internal","peer_id":"warden","source_agent_id":"warden","hops":0}`},
		{"recorded internal", "internal:agent:admin", `{"hops":8}`, "internal-admin", `{"channel_type":"internal","channel_id":"internal","peer_id":"admin","source_agent_id":"admin","hops":8}`},
		{
			"content of another agent does not count", "internal:dm:default:warden", `{"peer_id":"eve","reply_context":{"source_agent_id":"eve"}}`, "internal-warden",
			`{"channel_type":"internal","channel_id":"internal","peer_id":"warden","source_agent_id":"warden","hops":0}`,
		},
		{"hops of a person do not count", tui, `{"hops":99}`, "tui-main-alice", built},
	} {
		got, rc, err := Of(c.src, c.content)
		if err != nil || Thread(PerPeer, got) != "threads/peers/"+c.thread || string(rc) != c.want {
			t.Errorf("%s: %s %s, %v\nwant %s", c.name, Thread(PerPeer, got), rc, err, c.want)
		}
	}
}

func TestOfPoison(t *testing.T) {
	const tui = "external:tui:tui-main:dm:alice:alice"
	for _, c := range []struct{ name, src, content, reason string }{
		{"self", "self", "", fault.InvalidArgument},
		{"no address", "agent-1", "", fault.InvalidArgument},
		{"empty", "", "", fault.InvalidArgument},
		{"NUL", "external:tui:x:dm:s:\x00", "", fault.InvalidArgument},
		{"another peer", tui, `{"peer_id":"bob"}`, fault.InvalidArgument},
		{"another channel", tui, `{"channel_id":"x"}`, fault.InvalidArgument},
		{"another session", tui, `{"session_id":"x"}`, fault.InvalidArgument},
		{"another peer in the context", tui, `{"reply_context":{"peer_id":"bob"}}`, fault.InvalidArgument},
		{"content and context differ", "external:tui:x:dm:p", `{"session_id":"a","reply_context":{"session_id":"b"}}`, fault.InvalidArgument},
		{"forged internal", tui, `{"reply_context":{"channel_type":"internal","source_agent_id":"a"}}`, fault.InvalidArgument},
		{"forged internal by channel type", "external:internal:x:dm:s:p", `{"reply_context":{"channel_type":"internal"}}`, fault.InvalidArgument},
		{"forged console", tui, `{"reply_context":{"channel_type":"console"}}`, fault.InvalidArgument},
		{"console sent outside", source.Console, `{"reply_context":{"channel_type":"external"}}`, fault.InvalidArgument},
		{"context is a text", tui, `{"reply_context":"x"}`, fault.InvalidArgument},
		{"peer is a number", tui, `{"peer_id":42}`, fault.InvalidArgument},
		{"several readings", "external:mx:m:dm:s:a:b", "", fault.InvalidArgument},
		{"no reading agrees", "external:mx:m:dm:s:a:b", `{"peer_id":"c"}`, fault.InvalidArgument},
		{"too many readings", "external:mx" + strings.Repeat(":dm", 300), "", fault.InvalidArgument},
		{"odd and ambiguous", "external:mx:m:thread:s:a:b", "", fault.InvalidArgument},
		{"no channel", "external:tui::dm:s:p", "", fault.InvalidArgument},
		{"nine hops", "internal:dm:default:a", `{"hops":9}`, fault.HopLimit},
		{"endless hops", "internal:dm:default:a", `{"hops":99999999999999999999}`, fault.HopLimit},
		{"negative hops", "internal:dm:default:a", `{"hops":-1}`, fault.InvalidArgument},
		{"hops as text", "internal:dm:default:a", `{"hops":"1"}`, fault.InvalidArgument},
	} {
		got, rc, err := Of(c.src, c.content)
		if !fault.Is(err, c.reason) || got != (Tuple{}) || rc != nil {
			t.Errorf("%s: %+v %s, %v, want %s", c.name, got, rc, err, c.reason)
		}
	}
}

// TestAgreementIsTheSource: whatever the content claims, the thread is that of
// the source or there is none.
func TestAgreementIsTheSource(t *testing.T) {
	id := rapid.StringOfN(rapid.SampledFrom([]rune("ab-/.%:dm")), 1, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a := source.Address{
			Kind: source.External, ChannelType: "x", SessionType: source.DM,
			ChannelID: id.Draw(t, "channel"), SessionID: id.Draw(t, "session"),
			PeerID: id.Draw(t, "peer") + "p", // a source that ends in a colon names nobody
		}
		content, err := json.Marshal(map[string]string{"channel_id": a.ChannelID, "peer_id": a.PeerID, "session_id": a.SessionID})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Of(a.String(), string(content))
		if err != nil || got != tupleOf(a) {
			t.Fatalf("%s gives %+v, %v", content, got, err)
		}
		liar := id.Draw(t, "liar") + "p"
		content, _ = json.Marshal(map[string]string{"peer_id": liar})
		got, rc, err := Of(a.String(), string(content))
		if err == nil && (got.PeerID != liar || !strings.HasSuffix(a.String(), ":"+liar) || !json.Valid(rc)) {
			t.Fatalf("%q from %q gives %+v %s", liar, a, got, rc)
		}
	})
}

func FuzzOf(f *testing.F) {
	f.Add("external:tui:tui-main:dm:alice:alice", `{"channel_id":"tui-main","peer_id":"alice","session_id":"alice","text":"hi"}`)
	f.Add("external:telegram:tg-1:group:-100:42", `not json`)
	f.Add("external:mx:m:dm:s:a:b", `{"peer_id":"a:b","reply_context":{"peer_id":"a:b","x":1}}`)
	f.Add("internal:agent:admin", `{"text":"from admin","hops":3,"reply_context":{"channel_type":"internal"}}`)
	f.Add("internal:dm:default:../..", `{"hops":1e9}`)
	f.Add("self", `{}`)
	f.Fuzz(func(t *testing.T, src, content string) {
		got, rc, err := Of(src, content)
		if err != nil {
			if got != (Tuple{}) || rc != nil {
				t.Errorf("%q, %q: result and error", src, content)
			}
			return
		}
		var back struct {
			ChannelType string `json:"channel_type"`
			PeerID      string `json:"peer_id"`
			Agent       string `json:"source_agent_id"`
		}
		if !json.Valid(rc) || json.Unmarshal(rc, &map[string]any{}) != nil {
			t.Fatalf("%q, %q: reply_context %s", src, content, rc)
		}
		// An object with keys in other cases confuses a struct; the built ones have none.
		if got.Internal {
			if json.Unmarshal(rc, &back) != nil || back.PeerID != got.PeerID || back.Agent != got.PeerID || back.ChannelType != "internal" {
				t.Errorf("%q: internal context %s", src, rc)
			}
		}
		if got.ChannelID == "" || got.PeerID == "" || got.Internal != strings.HasPrefix(src, "internal:") || !strings.HasSuffix(src, got.PeerID) {
			t.Errorf("%q, %q: tuple %+v", src, content, got)
		}
		for _, m := range []Mode{PerPeer, PerChannel, PerAgent} {
			id := Thread(m, got)
			checkInside(t, id, SessionFile(id), MemoryUserFile(got), MemoryThreadFile(id))
		}
	})
}
