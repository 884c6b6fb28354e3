package telegram_test

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/telegram"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

// S2-16, S4-68: Telegram is held to the contract of every type of channel.
func TestConform(t *testing.T) {
	channeltest.Conform(t, func(t *testing.T) channeltest.Platform {
		bots++
		s := serve(t, telegramtest.Config{Token: fmt.Sprintf("%d:TEST-token", bots)})
		s.AddChat(telegramtest.Private(bob))
		return channeltest.Platform{
			Receiver: func() channel.Receiver { return receiver(t, s) },
			Channel: func() channel.Channel {
				d, deps := account(s)
				c, err := telegram.Type.Open("tg", d, deps)
				if err != nil {
					t.Fatal(err)
				}
				return c
			},
			Say:       func(text string) { say(s, text) },
			To:        to(bob.ID, "dm"),
			Confirmed: func() int { return s.Stats().Acked },
			Shown: func() (list []string) {
				for _, m := range s.Messages(bob.ID) {
					list = append(list, m.Text)
				}
				return list
			},
			Busy:     func() { s.Fail(telegramtest.Fault{Method: "sendMessage", Status: 429, RetryAfter: 17}) },
			Auth:     func() { s.Fail(telegramtest.Fault{Status: 401, Times: -1}) },
			Conflict: func() { s.Fail(telegramtest.Fault{Method: "getUpdates", Status: 409, Times: -1}) },
		}
	})
}
