package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/envfile"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/handlerlock"
)

// Free space below stopClaiming stops the runner; below low it is worth a word.
const (
	stopClaiming = 64 << 20
	low          = 1 << 30
	// staleAfter is the age at which a dispatcher's lock without a living
	// process is not one that is just being taken.
	staleAfter = time.Minute
)

// directory checks the home and that nobody else can read what is in it.
func (x *examination) directory(ctx context.Context) {
	path := x.home.Path()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.note("home", problem, "'agentd all' or 'agentctl up' makes it; or set THECLAW_HOME", "%s does not exist", path)
		return
	case err != nil:
		x.note("home", problem, "make it readable for you, or set THECLAW_HOME", "%v", err)
		return
	case !info.IsDir():
		x.note("home", problem, "set THECLAW_HOME to a directory", "%s is not a directory", path)
		return
	}
	wrong := x.files(ctx)
	if _, err := x.home.Socket(command.Deliverer); err != nil { // the longest of them
		wrong = true
		x.note("home", problem, "set THECLAW_HOME to a shorter path, such as a symbolic link to it", "%v", err)
	}
	if _, err := envfile.Read(x.home.EnvFile()); err != nil {
		wrong = true
		f := fault.From(err)
		x.note("home", problem, f.Fix, "%s", f.What)
	}
	if !wrong {
		x.good("home", "%s", path)
	}
}

// disk checks the room where messages are stored.
func (x *examination) disk() {
	var s syscall.Statfs_t
	if syscall.Statfs(x.home.Path(), &s) != nil {
		return // directory has said why
	}
	free := s.Bavail * uint64(s.Bsize)
	const fix = "free some space, 'agentctl prune' shows what can be removed; nothing is lost meanwhile"
	switch detail := fmt.Sprintf("%d MiB free", free>>20); {
	case free < stopClaiming:
		x.note("disk", problem, fix, "%s: messages are refused and no work is begun", detail)
	case free < low:
		x.note("disk", warning, fix, "%s", detail)
	default:
		x.good("disk", "%s", detail)
	}
}

// locks looks for locks that a dispatcher has left in an inbox: the external
// dispatch starts nobody while one is there.
func (x *examination) locks(agent, inbox string) {
	found, err := filepath.Glob(filepath.Join(inbox, "run", "*.lock"))
	if err != nil {
		return
	}
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < staleAfter || held(path) {
			continue
		}
		x.note("agent", problem, "rm "+path, "%s: %s is left of a process that is gone; the external dispatch waits for it", agent, path)
		x.mend("remove "+path, func(context.Context) error {
			if !handlerlock.Clear(inbox, strings.TrimSuffix(filepath.Base(path), ".lock")) {
				return errors.New("a handler has it by now")
			}
			return nil
		})
	}
}

// held tells whether the process that a lock names is alive.
func held(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return true // gone, or not ours to judge
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return false
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
