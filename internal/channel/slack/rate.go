package slack

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// conversationEvery is the rate of a conversation. Short bursts are permitted.
	conversationEvery, conversationBurst = time.Second, 3
	// maxRates bounds the memory.
	maxRates = 4096
)

var rates = channel.NewRates(maxRates, rate.Every(conversationEvery), conversationBurst)

// admit waits until a message to a conversation may be sent.
func (c *client) admit(ctx context.Context, token, conversation string) error {
	return channel.Admit(ctx, "conversation", rates.Of(channel.Fingerprint(c.api, token, conversation)))
}
