package plugin

import (
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// NewReceiver is a receiver that probes its plugin so often.
func NewReceiver(name string, d channel.Definition, every time.Duration) channel.Receiver {
	return &receiver{account: newAccount(name, d), probeEvery: every}
}
