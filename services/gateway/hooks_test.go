package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// observed collects what hooks have read. A program in the sandbox can leave nothing behind: these programs fail with
// what they read, which is logged.
type observed struct {
	mu     sync.Mutex
	events []seenEvent
}

type seenEvent struct {
	Event, ID, Agent, Source string
	SessionKey               string `json:"session_key"`
	RunID                    string `json:"run_id"`
	Payload                  map[string]any
}

func (s *observed) Write(line []byte) (int, error) {
	var l struct{ Msg, Error string }
	if json.Unmarshal(line, &l) == nil && l.Msg == "a hook failed" {
		if _, text, ok := strings.Cut(l.Error, "exit 9: "); ok {
			var e seenEvent
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				e.Event = "unreadable: " + text
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		}
	}
	return len(line), nil
}

// of returns the events with a name, once there are n.
func (s *observed) of(t *testing.T, name string, n int) (out []seenEvent) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		s.mu.Lock()
		out = slices.DeleteFunc(slices.Clone(s.events), func(e seenEvent) bool { return e.Event != name })
		all := slices.Clone(s.events)
		s.mu.Unlock()
		if len(out) >= n {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d %s: %+v", len(out), n, name, all)
		}
	}
}

// hookFile writes a program of a hook of the home.
func hookFile(t *testing.T, home, name, script string) {
	t.Helper()
	path := filepath.Join(home, "hooks", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// withHooks opens a world with an account tg and hooks of the home.
func withHooks(t *testing.T, api *telegramtest.Server, hooks string, logs *observed) *site {
	t.Helper()
	o := world.Options{Home: filepath.Join(t.TempDir(), "home"), Logger: slog.New(slog.NewJSONHandler(logs, nil))}
	hookFile(t, o.Home, "see.sh", "cat >&2; exit 9")
	hookFile(t, o.Home, "received.sh", `grep -q spam && { echo "no advertising" >&2; exit 2; }; exit 0`)
	hookFile(t, o.Home, "sending.sh", `in=$(cat)
case "$in" in
*secret*) echo "it is secret" >&2; exit 2;;
*wrong*) echo '{"text":"right"}';;
esac`)
	text := fmt.Sprintf("channels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\nhooks:\n%s", api.URL(), hooks)
	if err := os.WriteFile(filepath.Join(o.Home, "theclaw.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, o, "")
	h.Create(t, "admin", "")
	h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	return h
}

// S1-32, S1-40 to S1-44: programs in the sandbox get each event as JSON. A message that is dropped is not stored, one
// that is canceled is not sent, and one that is changed is what the platform gets.
func TestHooks(t *testing.T) {
	api, logs := botAPI(t), &observed{}
	var hooks bytes.Buffer
	hooks.WriteString("- {name: received, events: [message_received], command: [received.sh]}\n- {name: sending, events: [message_sending], command: [sending.sh]}\n")
	for n, e := range []string{"message_received", "message_sent", "command", "command:new", "session_start", "session_end", "gateway_start", "gateway_stop"} {
		fmt.Fprintf(&hooks, "- {name: see%d, events: [%q], command: [see.sh], timeout: 15s}\n", n, e)
	}
	h := withHooks(t, api, hooks.String(), logs)
	logs.of(t, "gateway_start", 1)

	say := func(text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
	}
	for _, text := range []string{"say: spam", "say: hello", "say: secret", "say: wrong", "/new"} {
		say(text)
	}
	if got := awaitReplies(t, api, bob.ID, 3); !slices.Equal(got[:2], []string{"hello", "right"}) || !strings.HasPrefix(got[2], "New session") {
		t.Errorf("%q", got)
	}
	settled(t, api)
	if n := h.stored(t); n != 4 { // all but the one that was dropped
		t.Errorf("%d are stored", n)
	}
	r, err := h.Deliveries.ListDeliveries(t.Context(), &registryv1.ListDeliveriesRequest{AgentId: "admin"})
	if err != nil || len(r.GetDeliveries()) != 4 {
		t.Fatal(r, err)
	}
	if d := r.GetDeliveries()[1]; d.GetState() != registryv1.DeliveryState_DELIVERY_STATE_SKIPPED || d.GetError() != "canceled by hook sending: it is secret" {
		t.Errorf("%v", d)
	}
	const key, from = "agent:admin:telegram:tg:dm:1207", "external:telegram:tg:dm:1207:1207"
	first := logs.of(t, "message_received", 4)[0]
	if first.Source != from || first.Payload["text"] != "say: hello" || first.Payload["account"] != "tg" || first.Payload["peer"] != "1207" || first.ID == "" {
		t.Errorf("%+v", first)
	}
	sent := logs.of(t, "message_sent", 3)
	if one := sent[1]; one.Payload["text"] != "right" || one.Agent != "admin" || one.SessionKey != key || one.RunID == "" {
		t.Errorf("%+v", one)
	} else if result, _ := one.Payload["result"].(map[string]any); result["status"] != "sent" || result["channel"] != "tg" || result["provider_id"] == "" {
		t.Errorf("%+v", result)
	}
	if c := logs.of(t, "command:new", 2); c[0].Payload["name"] != "new" || c[0].Source != from || c[0].SessionKey != key || c[0].ID == c[1].ID {
		t.Errorf("%+v", c)
	}
	starts, ends := logs.of(t, "session_start", 2), logs.of(t, "session_end", 1)
	if a, b := starts[0].Payload, starts[1].Payload; a["session_id"] == "" || b["previous"] != a["session_id"] || b["reason"] != "new" || ends[0].Payload["session_id"] != a["session_id"] {
		t.Errorf("%v, %v, %v", a, b, ends[0])
	}
	h.Stop()
	logs.of(t, "gateway_stop", 1)
}
