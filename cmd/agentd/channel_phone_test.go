//go:build proof

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/discord/discordtest"
	"github.com/theclaw/agents/internal/channel/plugin/plugintest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/testing/world"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

// channelType is a type of channel in the matrix.
type channelType struct {
	name string
	// open starts the platform, and returns it with the environment that its account needs. gateway
	// is the address of the gateway.
	open     func(t testing.TB, gateway string) (p phone, env []string)
	files    bool   // people can send files
	commands string // what a command begins with; empty: there are none
	// repeats means that the platform shows a message twice that was sent twice ([channel.None]).
	repeats bool
}

// channelTypes are the types, each in one line.
var channelTypes = []channelType{
	{name: "telegram", open: telegramPhone, files: true, commands: "/", repeats: true},
	{name: "discord", open: discordPhone, files: true, commands: "!"},
	{name: "slack", open: slackPhone, files: true, commands: "!"},
	{name: "webhook", open: webhookPhone, files: true},
	{name: "plugin", open: pluginPhone, files: true, commands: "/"},
}

// phone is a platform as the people see it who use it. It outlives every agentd.
type phone interface {
	// entry are the keys of the account.
	entry() string
	// peer is the id of a person.
	peer(person int) string
	// say makes a person write, with a file that has its own name as content, or without one.
	say(person int, text, file string)
	// heard are the texts that a person sees, in their order.
	heard(person int) []string
	// calm reports whether what people wrote was taken in, as far as the platform knows.
	calm() bool
}

type telegramPlatform struct{ *telegramtest.Server }

func telegramPhone(t testing.TB, _ string) (phone, []string) {
	s, err := telegramtest.Start(telegramtest.Config{})
	check(t, err)
	t.Cleanup(s.Close)
	return telegramPlatform{s}, []string{"TG=" + s.Token()}
}

func (p telegramPlatform) entry() string { return fmt.Sprintf("token: \"env:TG\", api: %q", p.URL()) }

func (telegramPlatform) peer(person int) string { return fmt.Sprint(person) }

func (p telegramPlatform) say(person int, text, file string) {
	u := telegramtest.User{ID: int64(person), FirstName: "P"}
	m := telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: text}
	if file != "" {
		m.Files = []telegramtest.File{{Kind: "document", Name: file, MIME: "text/plain", Content: []byte(file)}}
	}
	p.Say(m)
}

func (p telegramPlatform) heard(person int) (out []string) {
	for _, m := range p.Messages(int64(person)) {
		if m.From != nil && m.From.IsBot {
			out = append(out, m.Text)
		}
	}
	return out
}

func (p telegramPlatform) calm() bool {
	s := p.Stats()
	return s.Acked == s.Updates
}

type discordPlatform struct{ *discordtest.Server }

func discordPhone(t testing.TB, _ string) (phone, []string) {
	const token = "OTAw.Gh1.matrix"
	s, err := discordtest.New(token)
	check(t, err)
	t.Cleanup(s.Close)
	return discordPlatform{s}, []string{"DC=" + token}
}

func (p discordPlatform) entry() string { return fmt.Sprintf("token: \"env:DC\", api: %q", p.URL) }

func (p discordPlatform) channel(person int) string { return fmt.Sprint("70", person) }

func (discordPlatform) peer(person int) string { return fmt.Sprint(person) }

func (p discordPlatform) say(person int, text, file string) {
	p.AddChannel(discordtest.Channel{ID: p.channel(person), Type: 1})
	m := discordtest.Message{ChannelID: p.channel(person), Author: discordtest.User{ID: fmt.Sprint(person), Username: "p"}, Content: text}
	if file != "" {
		m.Attachments = fmt.Appendf(nil, `[{"id":"1","filename":%q,"content_type":"text/plain","size":%d,"url":%q}]`, file, len(file), p.AddFile(file, []byte(file)))
	}
	p.Say(m)
}

func (p discordPlatform) heard(person int) (out []string) {
	for _, m := range p.Messages(p.channel(person)) {
		if m.Author.Bot {
			out = append(out, m.Content)
		}
	}
	return out
}

func (p discordPlatform) calm() bool { return true }

type slackPlatform struct{ *slacktest.Server }

func slackPhone(t testing.TB, _ string) (phone, []string) {
	// The platform tries four times within minutes. Here a start lasts a second, in which it would give up.
	s, err := slacktest.Start(slacktest.Config{Tries: 1000})
	check(t, err)
	t.Cleanup(s.Close)
	return slackPlatform{s}, []string{"SB=" + slacktest.BotToken, "SA=" + slacktest.AppToken}
}

func (p slackPlatform) entry() string {
	return fmt.Sprintf("token: \"env:SB\", app_token: \"env:SA\", api: %q", p.URL())
}

func (slackPlatform) peer(person int) string { return fmt.Sprint("U", person) }

func (p slackPlatform) say(person int, text, file string) {
	u := slacktest.User{ID: p.peer(person), Name: "p", RealName: "P"}
	p.AddUser(u)
	p.AddChannel(slacktest.IM(u))
	m := slacktest.Message{Channel: slacktest.IM(u), User: u.ID, Text: text}
	if file != "" {
		m.Files = []slacktest.File{{Name: file, MIME: "text/plain", Content: []byte(file)}}
	}
	p.Say(m)
}

func (p slackPlatform) heard(person int) (out []string) {
	for _, m := range p.Messages(slacktest.IM(slacktest.User{ID: p.peer(person)}).ID) {
		out = append(out, m.Text)
	}
	return out
}

func (p slackPlatform) calm() bool {
	s := p.Stats()
	return s.Acked == s.Events
}

type pluginPlatform struct{ *plugintest.Server }

func pluginPhone(t testing.TB, _ string) (phone, []string) {
	s, err := plugintest.Start(nil)
	check(t, err)
	t.Cleanup(s.Close)
	return pluginPlatform{s}, nil
}

func (p pluginPlatform) entry() string { return fmt.Sprintf("plugin: %q", p.Address()) }

func (pluginPlatform) peer(person int) string { return fmt.Sprint(person) }

func (p pluginPlatform) say(person int, text, file string) {
	u := plugintest.Direct(fmt.Sprint(person), text)
	if file != "" {
		p.AddFile(file, []byte(file))
		u.Attachments = []*channelv1.Attachment{{Id: file, Type: "file", Mime: "text/plain", Name: file}}
	}
	p.Say(u)
}

func (p pluginPlatform) heard(person int) (out []string) {
	for _, m := range p.Messages(plugintest.DirectOf(fmt.Sprint(person))) {
		out = append(out, m.Text)
	}
	return out
}

func (p pluginPlatform) calm() bool {
	s := p.Stats()
	return s.Confirmed == s.Updates
}

// webhookPlatform is a program that posts the messages of its people, each until it is accepted,
// and takes the replies.
type webhookPlatform struct {
	*world.Sink
	ctx  context.Context
	url  string
	wg   sync.WaitGroup
	mu   sync.Mutex
	next int
	// posts are what is not accepted yet of each person; refused what they were answered.
	posts   map[int][][]byte
	refused map[int][]string
}

const webhookKey = "a-key-of-the-matrix"

func webhookPhone(t testing.TB, gateway string) (phone, []string) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &webhookPlatform{Sink: world.NewSink(t), ctx: ctx, url: gateway + "/hooks/webhook", posts: map[int][][]byte{}, refused: map[int][]string{}}
	t.Cleanup(func() { cancel(); p.wg.Wait() })
	return p, []string{"WH=" + webhookKey}
}

func (p *webhookPlatform) entry() string {
	return fmt.Sprintf("secret: \"env:WH\", allow_private: true, url: %q", p.URL)
}

func (*webhookPlatform) peer(person int) string { return fmt.Sprint(person) }

func (p *webhookPlatform) say(person int, text, file string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	m := map[string]any{"id": fmt.Sprint("o-", p.next), "from": map[string]string{"id": fmt.Sprint(person), "name": "P"}, "text": text}
	if file != "" {
		m["attachments"] = []map[string]any{{"name": file, "mime": "text/plain", "data": []byte(file)}} // in base64
	}
	doc, err := json.Marshal(m)
	if err != nil {
		panic(err) // texts always can be
	}
	p.posts[person] = append(p.posts[person], doc)
	if len(p.posts[person]) == 1 {
		p.wg.Go(func() { p.post(person) })
	}
}

// post posts what a person wrote, in its order.
func (p *webhookPlatform) post(person int) {
	for failures := 0; p.ctx.Err() == nil; {
		p.mu.Lock()
		if len(p.posts[person]) == 0 {
			p.mu.Unlock()
			return
		}
		doc := p.posts[person][0]
		p.mu.Unlock()
		answer, ok := p.try(doc)
		if !ok {
			failures++
			_ = pause.For(p.ctx, min(time.Duration(failures)*10*time.Millisecond, 200*time.Millisecond))
			continue
		}
		failures = 0
		p.mu.Lock()
		if answer != "" {
			p.refused[person] = append(p.refused[person], answer)
		}
		p.posts[person] = p.posts[person][1:]
		p.mu.Unlock()
	}
}

// try posts once. The answer is the reason for which a message was refused.
func (p *webhookPlatform) try(doc []byte) (answer string, ok bool) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(doc))
	if err != nil {
		return "", false
	}
	r.Header.Set(webhook.SignatureHeader, webhook.Sign(webhookKey, time.Now(), doc))
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	var a struct {
		Accepted bool   `json:"accepted"`
		Message  string `json:"message"`
	}
	if err != nil || got.StatusCode >= 300 || json.Unmarshal(body, &a) != nil {
		return "", false
	}
	if a.Accepted {
		return "", true
	}
	return a.Message, true
}

// heard are the replies, each key once: the receiver's part of the contract.
func (p *webhookPlatform) heard(person int) []string {
	p.mu.Lock()
	out := append([]string(nil), p.refused[person]...)
	p.mu.Unlock()
	seen := map[string]bool{}
	for _, a := range p.Arrivals("") {
		var doc struct {
			To struct {
				Peer string `json:"peer_id"`
			} `json:"reply_context"`
		}
		if json.Unmarshal(a.Body, &doc) == nil && doc.To.Peer == fmt.Sprint(person) && !seen[a.Key] {
			seen[a.Key] = true
			out = append(out, a.Text)
		}
	}
	return out
}

func (p *webhookPlatform) calm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.posts {
		if len(list) > 0 {
			return false
		}
	}
	return true
}
