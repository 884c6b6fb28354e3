package telegram

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// An account sends at most 30 messages a second, however they are spread.
	accountRate, accountBurst = 29, 1
	// A chat gets one a second; a group also 20 in any minute: 5 at once, then one each 4 s.
	chatEvery              = time.Second
	groupEvery, groupBurst = 4 * time.Second, 5
	// maxChats and maxBots bound the memory.
	maxChats = 4096
	maxBots  = 256
)

// rates are those of all bots that this process sends for.
type rates struct{ bots, chats, groups *channel.Rates }

func newRates() *rates {
	return &rates{
		bots: channel.NewRates(maxBots, accountRate, accountBurst), chats: channel.NewRates(maxChats, rate.Every(chatEvery), 1),
		groups: channel.NewRates(maxChats, rate.Every(groupEvery), groupBurst),
	}
}

var sent = newRates()

// admit waits until a message of a bot may be sent to a chat. bot is the same for all its senders.
func (r *rates) admit(ctx context.Context, bot, chat string, group bool) error {
	list := []*rate.Limiter{r.bots.Of(bot), r.chats.Of(bot + " " + chat)}
	if group {
		list = append(list, r.groups.Of(bot+" "+chat))
	}
	return channel.Admit(ctx, "chat", list...)
}
