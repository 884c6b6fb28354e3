package plugin_test

import (
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/plugin"
	"github.com/theclaw/agents/internal/channel/plugin/plugintest"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a plugin that describes itself so; nil: as one that can do everything.
func start(t *testing.T, d *channelv1.DescribeResponse) *plugintest.Server {
	t.Helper()
	s, err := plugintest.Start(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func definition(s *plugintest.Server) channel.Definition {
	return channel.Definition{Type: "plugin", Plugin: s.Address()}
}

func open(t *testing.T, s *plugintest.Server) channel.Channel {
	t.Helper()
	c, err := plugin.Type.Open("pl", definition(s), channel.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func receiver(t *testing.T, s *plugintest.Server) channel.Receiver {
	t.Helper()
	r, err := plugin.Type.Receive("pl", definition(s), channel.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// place is the reply_context of the direct conversation with a person.
func place(peer string) channel.ReplyContext {
	rc := channel.ReplyContext{}
	for key, value := range map[string]string{"session_id": plugintest.DirectOf(peer), "peer_id": peer, "kind": "dm", "reply_to_id": "m1"} {
		rc[key], _ = json.Marshal(value)
	}
	return rc
}

// S2-16, S3-104: a plugin is held to the contract of every type of channel.
func TestConform(t *testing.T) {
	for name, guarantee := range map[string]channelv1.Guarantee{
		"keyed": channelv1.Guarantee_GUARANTEE_KEYED, "query": channelv1.Guarantee_GUARANTEE_QUERY, "none": channelv1.Guarantee_GUARANTEE_NONE,
	} {
		t.Run(name, func(t *testing.T) {
			channeltest.Conform(t, func(t *testing.T) channeltest.Platform {
				d := plugintest.Default()
				d.Guarantee = guarantee
				s := start(t, d)
				return channeltest.Platform{
					Receiver:  func() channel.Receiver { return receiver(t, s) },
					Channel:   func() channel.Channel { return open(t, s) },
					Say:       func(text string) { s.Say(plugintest.Direct("1207", text)) },
					To:        place("1207"),
					Confirmed: func() int { return s.Stats().Confirmed },
					Shown: func() (list []string) {
						for _, m := range s.Messages(plugintest.DirectOf("1207")) {
							list = append(list, m.Text)
						}
						return list
					},
					Busy: func() {
						s.Fail(plugintest.Fault{Method: "Send", Code: codes.ResourceExhausted, Message: "too many messages", RetryAfter: 17 * time.Second, Times: 1})
					},
					Auth: func() {
						for _, method := range []string{"Receive", "Send"} {
							s.Fail(plugintest.Fault{Method: method, Code: codes.Unauthenticated, Message: "the token is refused", Times: -1})
						}
					},
					Conflict: func() {
						s.Fail(plugintest.Fault{Method: "Receive", Code: codes.Aborted, Message: "another program reads", Times: -1})
					},
				}
			})
		})
	}
}
