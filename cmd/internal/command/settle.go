package command

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/theclaw/agents/internal/agentdir/layout"
)

const (
	// starting is how long the first call waits for a service that is starting.
	starting = 2 * time.Second
	// sign is how long it waits for a sign that one is: `agentd all & agentctl ...`
	// runs before agentd has done anything.
	sign = 500 * time.Millisecond
)

// settle waits for the connection before its first call, so that a service that
// is about to listen is not an error. It waits only for the socket of this home:
// an address that was given is as it is. What was wrong is for the call to say.
func (c *conn) settle(ctx context.Context, cc *grpc.ClientConn) {
	home, err := c.env.Home()
	if err != nil || c.env.Impatient || c.env.given(c.service) != "" {
		return
	}
	cc.Connect()
	if c.ready(ctx, cc, sign) || !held(home) {
		return
	}
	c.ready(ctx, cc, starting-sign)
}

// ready waits for the connection, as long as d; one that fails is tried again by
// itself.
func (c *conn) ready(ctx context.Context, cc *grpc.ClientConn, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		s := cc.GetState()
		switch s {
		case connectivity.Ready, connectivity.Shutdown:
			return true
		case connectivity.Idle:
			cc.Connect()
		default:
		}
		if !cc.WaitForStateChange(ctx, s) {
			return false
		}
	}
}

// held tells whether a process that lives has written itself into the lock of
// the home, which is the first thing a registry does.
func held(home layout.Home) bool {
	b, err := os.ReadFile(home.LockFile())
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return err == nil && pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
