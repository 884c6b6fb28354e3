package discord_test

import (
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

// S3-104, S4-68: Discord is held to the contract of every type of channel.
func TestConform(t *testing.T) {
	channeltest.Conform(t, func(t *testing.T) channeltest.Platform {
		s := server(t)
		return channeltest.Platform{
			Receiver: func() channel.Receiver { return receiver(t, s) },
			Channel:  func() channel.Channel { return sender(t, s) },
			Say:      func(text string) { s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: text}) },
			To:       to("10", "dm", ""),
			Ready:    func() { await(t, s, "identify", 1) },
			Shown: func() (list []string) {
				for _, m := range s.Messages("10") {
					if m.Author.Bot {
						list = append(list, m.Content)
					}
				}
				return list
			},
			Busy: func() {
				s.Fail("POST /channels/ID/messages", discordtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "17"}, Body: `{"retry_after":17,"global":false}`})
			},
			Auth: func() {
				for _, request := range []string{"GET /gateway/bot", "POST /channels/ID/messages"} {
					s.Fail(request, discordtest.Fault{Status: 401, Body: `{"message":"401: Unauthorized","code":0}`, Times: 9})
				}
			},
		}
	})
}
