package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/leftover"
)

const (
	// maxNamed bounds the files of one kind that are named one by one.
	maxNamed = 10
	// cutOff is the age at which a file of a write is not one that is going on.
	cutOff = 10 * time.Minute
)

// open is a file that others can get at.
type open struct {
	rel       string
	mode, own fs.FileMode
}

// files looks at the names and modes of everything in the home but what programs
// have made in a workdir, which is theirs. It tells whether something is wrong.
func (x *examination) files() (wrong bool) {
	var exposed []open
	var left []string
	home := x.home.Path()
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile, or not ours to read: what needs it says so
		}
		rel, err := filepath.Rel(home, path)
		if err != nil {
			return err
		}
		if parts := strings.Split(rel, string(filepath.Separator)); len(parts) > 3 && parts[0] == "agents" && parts[2] == "workdir" {
			return fs.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if most, counts := exposure.PrivateMode(info); counts && info.Mode().Perm()&^most != 0 {
			exposed = append(exposed, open{rel, info.Mode().Perm(), most})
		}
		if leftover.Is(filepath.ToSlash(rel)) && time.Since(info.ModTime()) > cutOff {
			left = append(left, rel)
		}
		return nil
	})
	if err != nil {
		x.note("home", problem, "make it readable for you", "%v", err)
		wrong = true
	}
	x.modes(exposed)
	x.leftovers(left)
	return wrong || len(exposed) > 0 || len(left) > 0
}

// modes narrows what others can get at.
func (x *examination) modes(exposed []open) {
	for i, f := range exposed {
		path := filepath.Join(x.home.Path(), f.rel)
		if i < maxNamed {
			x.note("home", problem, fmt.Sprintf("chmod %o %s", f.own, path), "%s has mode %o: others can get at it", path, f.mode)
		} else if i == maxNamed {
			x.note("home", problem, "agentctl doctor --fix", "%d more have such a mode", len(exposed)-maxNamed)
		}
		x.mend(fmt.Sprintf("chmod %o %s", f.own, path), func(context.Context) error { return x.within(func(r *os.Root) error { return r.Chmod(f.rel, f.own) }) })
	}
}

// leftovers removes what cut-off writes have left, where nobody writes.
func (x *examination) leftovers(left []string) {
	if len(left) == 0 {
		return
	}
	x.note("home", warning, "end the services, then 'agentctl doctor --fix'", "%d files were left by interrupted writes, such as %s; nothing refers to them",
		len(left), filepath.Join(x.home.Path(), left[0]))
	x.mend(fmt.Sprintf("remove %d files of interrupted writes", len(left)), func(context.Context) error {
		unlock, pid, err := homelock.Take(x.home)
		if err != nil {
			return err
		}
		if pid != "" {
			return fmt.Errorf("a registry works here (pid %s): end it first", pid)
		}
		err = x.within(func(r *os.Root) error {
			var errs []error
			for _, rel := range left {
				errs = append(errs, r.RemoveAll(rel))
			}
			return errors.Join(errs...)
		})
		return errors.Join(err, unlock())
	})
}

// within works below the home and nowhere else, whatever links stand in it.
func (x *examination) within(do func(*os.Root) error) error {
	r, err := os.OpenRoot(x.home.Path())
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}
