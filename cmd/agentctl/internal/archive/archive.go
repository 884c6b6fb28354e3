// Package archive implements the commands `agentctl backup` and `agentctl restore`. Where
// a registry serves the home it does the work, by RPC, so that both commands also work
// from another machine and for agents of a database; where none does, the same code runs
// here under the home's lock.
//
// With --with-home a backup also holds the settings of the home, its keys and certificates,
// which agentctl reads and writes itself (home.go), and what people decided for the home, which
// its registry exports and adds (package decisions of the registry).
//
// A backup gets its name when it is complete, verified and on disk; it never replaces a
// file. What a backup contains and what a restore promises is defined by package
// backup.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/newfile"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
)

// Commands answers backup and restore.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{backupCommand(e), restoreCommand(e)}
}

// resting takes the home's lock when no registry has it; nil means that one
// serves. Close gives both back.
type resting struct {
	*agentdir.Home
	lock *flock.Flock
}

func rest(e *command.Env, create bool) (*resting, error) {
	if e.Flags.Registry != "" {
		return nil, nil
	}
	at, err := e.Home()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(at.Path()); err != nil && (!create || !errors.Is(err, fs.ErrNotExist)) {
		return nil, newfile.Fault(err, "set THECLAW_HOME or --home to the home directory")
	}
	home, err := agentdir.OpenHome(at.Path())
	if err != nil {
		return nil, err
	}
	home.UserHome = e.Getenv("HOME")
	if set, err := home.Storage(); err != nil || len(set.DSNs) > 0 { // the agents are not here: a registry has them
		return nil, errors.Join(err, home.Close())
	}
	r := &resting{home, flock.New(at.LockFile(), flock.SetPermissions(0o600))}
	ok, err := r.lock.TryLock()
	if err == nil && ok {
		// A registry that is refused names who has the home.
		err = os.WriteFile(at.LockFile(), []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	if err != nil {
		return nil, errors.Join(agentdir.Fault(fmt.Errorf("lock home: %w", err)), r.close())
	}
	if !ok {
		return nil, r.close()
	}
	return r, nil
}

func (r *resting) close() error { return errors.Join(r.lock.Unlock(), r.Home.Close()) }

// size says how many bytes in words.
func size(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// ended explains an upload or download whose other side went away; it is what
// the stream says, and not that the pipe is closed.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return agentdir.Fault(err)
}

func usageOf(c *cobra.Command, file string) error {
	if file == "" {
		return command.Usage(c, "the name of the file is empty")
	}
	return nil
}
