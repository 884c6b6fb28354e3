package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/gofrs/flock"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// lock takes the home's lock, shared, unless a registry (or a repair) has it.
// Where there is no place for a lock there is no registry.
func lock(home string) (unlock func() error, free bool, err error) {
	h := layout.At(home)
	if _, err := os.Stat(h.RunDir()); errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	l := flock.New(h.LockFile(), flock.SetPermissions(0o600))
	if free, err = l.TryRLock(); err != nil || !free {
		return nil, false, errors.Join(err, l.Close())
	}
	return l.Unlock, true, nil
}

// answers tells whether somebody listens where the registry of home would.
func answers(ctx context.Context, home string) bool {
	path, err := layout.At(home).Socket("registry")
	if err != nil {
		return false
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func occupied(home string, cause error) error {
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	pid, _ := os.ReadFile(layout.At(home).LockFile())
	return fault.Wrap(fault.New(codes.Unavailable, fault.HomeLocked,
		fmt.Sprintf("process %s has %s and no registry answers there", strings.TrimSpace(string(pid)), home),
		"wait until it is done, or ask 'agentctl doctor'"), cause)
}
