package registry_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S4-28, S4-29: ids of people, groups and threads may be long, and need not be of a kind that a database can compress: their
// messages are counted and worked on, and their conversations are found in another case.
func TestLongIDs(t *testing.T) { backendtest.Each(t, testLongIDs) }

func testLongIDs(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "quota: {peer_messages_per_day: 10}\nchannels:\n  wh: {type: webhook, dm: open, rate: 0, groups: {allow: ['*'], mode: always}}\n")
	long := func() string {
		id := make([]byte, 5000)
		for i := range id {
			id[i] = 'A' + byte(rand.IntN(26))
		}
		return string(id)
	}
	for i, m := range []*registryv1.InboundMessage{
		{Kind: "dm", SessionId: "p", PeerId: long()},
		{Kind: "group", SessionId: long(), PeerId: "p"},
		{Kind: "dm", SessionId: "p", PeerId: "p", PlatformThread: long()},
	} {
		m.Key, m.Text = fmt.Sprint(i), "hello"
		got := accept(t, w, m)
		if got.GetOutcome() != accepted || len(claimed(t, w, "main")) != 1 {
			t.Fatalf("%d: %v", i, got)
		}
		s, err := w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{AgentId: "main", Key: strings.ToLower(got.GetSessionKey())})
		if key := backendtest.Must(t, s, err).GetSession().GetKey(); key != got.GetSessionKey() {
			t.Errorf("%d: the session has the key %.80q", i, key)
		}
	}
}
