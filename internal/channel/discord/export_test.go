package discord

import (
	"time"

	"github.com/theclaw/agents/internal/channel"
)

// NewReceiver returns a receiver that waits less after a session was refused.
func NewReceiver(d channel.Definition, resolve channel.Resolve, wait time.Duration) (channel.Receiver, error) {
	r, err := Type.Receive("dc", d, channel.Deps{Resolve: resolve})
	if err == nil {
		r.(*receiver).invalidWait = wait
	}
	return r, err
}
