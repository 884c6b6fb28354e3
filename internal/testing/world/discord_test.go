package world_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/channel/discord/discordtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestDiscordReply is S1-49 and S3-104: a reply to a message of an account goes back over it, in
// parts that its platform takes. A part whose answer is lost is there once, and what the platform
// refuses for a while waits.
func TestDiscordReply(t *testing.T) {
	s, err := discordtest.New("token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddChannel(discordtest.Channel{ID: "10", Type: 1})
	o := quick()
	o.Home = filepath.Join(t.TempDir(), "home")
	o.Env = map[string]string{"env:DC": "token"}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	accounts := fmt.Sprintf("channels:\n  dc: {type: discord, token: 'env:DC', api: %q, dm: open}\n", s.URL)
	if err := os.WriteFile(filepath.Join(o.Home, "theclaw.yaml"), []byte(accounts), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, o)
	w.Create(t, "admin", "")
	var parts []string
	for _, c := range []string{"a", "b", "é"} {
		parts = append(parts, strings.Repeat(c+" ", 800))
	}
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Acts: true, Times: 2})
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "dc", Messages: []*registryv1.InboundMessage{{
		Key: "discord:1:10:5", Kind: "dm", SessionId: "10", PeerId: "501", MessageId: "5", Text: "say: " + strings.Join(parts, "\n\n"),
	}}})
	if err != nil || len(r.GetResults()) != 1 || r.GetResults()[0].GetInboxId() == 0 {
		t.Fatal(r, err)
	}
	if d := w.Delivered(t, "admin", r.GetResults()[0].GetInboxId()).GetDelivery(); d.GetState() != sent {
		t.Fatal(d)
	}
	var got []string
	for _, m := range s.Messages("10") {
		got = append(got, m.Content)
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if !slices.Equal(got, parts) {
		t.Errorf("%d messages: %.200q", len(got), got)
	}
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Status: http.StatusForbidden, Body: `{"message":"Cannot send messages to this user","code":50007}`})
	r, err = w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "dc", Messages: []*registryv1.InboundMessage{{
		Key: "discord:1:10:6", Kind: "dm", SessionId: "10", PeerId: "501", MessageId: "6", Text: "say: blocked",
	}}})
	if err != nil || len(r.GetResults()) != 1 {
		t.Fatal(r, err)
	}
	d := w.Delivered(t, "admin", r.GetResults()[0].GetInboxId()).GetDelivery()
	if cause := d.GetError(); d.GetState() != dead || !strings.Contains(cause, "Cannot send messages to this user") || strings.Contains(cause, "token") {
		t.Errorf("state %v, cause %q", d.GetState(), cause)
	}
}
