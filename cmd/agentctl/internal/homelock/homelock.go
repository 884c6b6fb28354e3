// Package homelock keeps every registry out of a home while a command edits its files.
//
// The lock is the registry's own lock, and is released when the process ends.
package homelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
)

// Take takes the lock that every registry of this home takes, or answers the
// pid of the one that has it. Where there is nowhere to put a lock there is no
// registry.
func Take(home layout.Home) (unlock func() error, pid string, err error) {
	none := func() error { return nil }
	if _, err := os.Stat(home.RunDir()); errors.Is(err, fs.ErrNotExist) {
		return none, "", nil
	}
	lock := flock.New(home.LockFile(), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, "", agentdir.Fault(fmt.Errorf("lock home: %w", err))
	}
	if !ok {
		b, err := os.ReadFile(home.LockFile())
		if pid = strings.TrimSpace(string(b)); err != nil || pid == "" {
			pid = "unknown"
		}
		return none, pid, nil
	}
	// A registry that is refused names who has the home.
	if err := os.WriteFile(home.LockFile(), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, "", errors.Join(agentdir.Fault(err), lock.Unlock())
	}
	return lock.Unlock, "", nil
}
