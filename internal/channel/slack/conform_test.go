package slack_test

import (
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// S2-16, S4-68: Slack is held to the contract of every type of channel.
func TestConform(t *testing.T) {
	channeltest.Conform(t, func(t *testing.T) channeltest.Platform {
		s := serve(t, slacktest.Config{})
		return channeltest.Platform{
			Receiver:  func() channel.Receiver { return receiver(t, s) },
			Channel:   func() channel.Channel { return sender(t, s) },
			Say:       func(text string) { say(s, text) },
			To:        to(slacktest.IM(bob).ID, ""),
			Confirmed: func() int { return s.Stats().Acked },
			Shown: func() (list []string) {
				for _, m := range s.Messages(slacktest.IM(bob).ID) {
					list = append(list, m.Text)
				}
				return list
			},
			Busy: func() { s.Fail(slacktest.Fault{Method: "chat.postMessage", Status: 429, RetryAfter: 17}) },
			Auth: func() { s.Fail(slacktest.Fault{Error: "invalid_auth", Times: -1}) },
		}
	})
}
