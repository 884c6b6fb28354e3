//go:build proof

package canary_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/discord/discordtest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/channel/webhook"
)

// platforms are the chat platforms of a home, each with an account whose secret is a canary.
type platforms struct {
	telegram *telegramtest.Server
	slack    *slacktest.Server
	discord  *discordtest.Server
	secrets  secrets
}

// Places of secrets.
const (
	telegramToken = "token of Telegram"
	slackToken    = "token of Slack"
	slackApp      = "app token of Slack"
	discordToken  = "token of Discord"
	webhookSecret = "secret of a webhook account"
)

// startPlatforms starts them, and notes their secrets in s.
func startPlatforms(t *testing.T, s secrets) *platforms {
	t.Helper()
	s[telegramToken], s[discordToken], s[webhookSecret] = "4242:"+canary("TEST"), canary("dc"), canary("wh")
	s[slackToken], s[slackApp] = slacktest.BotToken, slacktest.AppToken
	p := &platforms{secrets: s}
	var err error
	p.telegram, err = telegramtest.Start(telegramtest.Config{Token: s[telegramToken]})
	must(t, err)
	t.Cleanup(p.telegram.Close)
	p.slack, err = slacktest.Start(slacktest.Config{})
	must(t, err)
	t.Cleanup(p.slack.Close)
	p.slack.AddUser(slackUser)
	p.slack.AddChannel(slacktest.IM(slackUser))
	p.discord, err = discordtest.New(s[discordToken])
	must(t, err)
	t.Cleanup(p.discord.Close)
	p.discord.AddChannel(discordtest.Channel{ID: "10", Type: 1})
	return p
}

var (
	telegramUser = telegramtest.User{ID: 1207, FirstName: "Bob"}
	slackUser    = slacktest.User{ID: "U1207", Name: "bob", RealName: "Bob"}
	discordUser  = discordtest.User{ID: "1207", Username: "bob"}
)

// env are the variables that the settings refer to.
func (p *platforms) env() []string {
	return []string{
		"CANARY_TG=" + p.secrets[telegramToken], "CANARY_SL=" + p.secrets[slackToken], "CANARY_APP=" + p.secrets[slackApp],
		"CANARY_DC=" + p.secrets[discordToken], "CANARY_WH=" + p.secrets[webhookSecret],
	}
}

// settings are those of the home, whose gateway listens at an address.
func (p *platforms) settings(gateway string) string {
	return fmt.Sprintf(`gateway: {http: %q}
channels:
  tg: {type: telegram, token: "env:CANARY_TG", api: %q, dm: open}
  sl: {type: slack, token: "env:CANARY_SL", app_token: "env:CANARY_APP", api: %q, dm: open}
  dc: {type: discord, token: "env:CANARY_DC", api: %q, dm: open}
  wh: {type: webhook, secret: "env:CANARY_WH", dm: open}
`, gateway, p.telegram.URL(), p.slack.URL(), p.discord.URL)
}

// use sends a message over each account and waits for its answer, and another one whose answer the
// platform refuses with an error that repeats the secret. In the end the platforms refuse the tokens.
func (p *platforms) use(t *testing.T, gateway string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	im := slacktest.IM(slackUser)
	say := func(text string) {
		p.telegram.Say(telegramtest.Message{Chat: telegramtest.Private(telegramUser), From: &telegramUser, Text: text})
		p.slack.Say(slacktest.Message{Channel: im, User: slackUser.ID, Text: text})
		p.discord.Say(discordtest.Message{ChannelID: "10", Author: discordUser, Content: text})
	}
	say("hi")
	must(t, p.telegram.Wait(ctx, func() bool { return len(p.telegram.Calls("sendMessage")) == 1 }))
	must(t, p.slack.Wait(ctx, func() bool { return len(p.slack.Calls("chat.postMessage")) == 1 }))
	must(t, p.discord.Wait(ctx, "POST /channels/ID/messages", 1))

	repeats := `{"ok":false,"error":"bad token ` + p.secrets[slackToken] + `"}`
	p.telegram.Fail(telegramtest.Fault{Method: "sendMessage", Status: http.StatusBadRequest, Description: "bad token " + p.secrets[telegramToken]})
	p.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Body: repeats})
	p.discord.Fail("POST /channels/ID/messages", discordtest.Fault{Status: http.StatusBadRequest, Body: `{"code":1,"message":"bad token ` + p.secrets[discordToken] + `"}`})
	say("again")
	must(t, p.telegram.Wait(ctx, func() bool { return len(p.telegram.Calls("sendMessage")) >= 2 }))
	must(t, p.slack.Wait(ctx, func() bool { return len(p.slack.Calls("chat.postMessage")) >= 2 }))
	must(t, p.discord.Wait(ctx, "POST /channels/ID/messages", 2))

	for _, key := range []string{p.secrets[webhookSecret], "another key"} {
		body := `{"id":"1","from":{"id":"c7"},"text":"hi"}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+gateway+"/hooks/wh?wait=20s", strings.NewReader(body))
		must(t, err)
		req.Header.Set(webhook.SignatureHeader, webhook.Sign(key, time.Now(), []byte(body)))
		answer, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, answer.Body.Close())
		if ok := key != "another key"; (answer.StatusCode == http.StatusOK) != ok {
			t.Errorf("the webhook answered %d", answer.StatusCode)
		}
	}
	p.telegram.Fail(telegramtest.Fault{Status: http.StatusUnauthorized, Description: "bad token " + p.secrets[telegramToken], Times: -1})
	p.slack.Fail(slacktest.Fault{Error: "invalid_auth", Times: -1})
	p.discord.Token(canary("other"))
	p.discord.Cut(4004)
}
