package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/internal/boundary"
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
func (x *examination) files(ctx context.Context) (wrong bool) {
	var exposed, enclosed []open
	var left []string
	err := exposure.Walk(ctx, x.home, "", func(f exposure.File) error {
		switch how, most := f.Exposed(); how {
		case exposure.Exposed:
			exposed = append(exposed, open{f.Path, f.Info.Mode().Perm(), most})
		case exposure.Enclosed:
			enclosed = append(enclosed, open{f.Path, f.Info.Mode().Perm(), most})
		case exposure.Private:
		}
		if leftover.Is(f.Path) && time.Since(f.Info.ModTime()) > cutOff {
			left = append(left, f.Path)
		}
		if f.Rest == "workdir" && f.Info.IsDir() {
			return fs.SkipDir
		}
		return nil
	}, func(exposure.File, error) {}) // what needs it reports that it cannot be read
	if err != nil {
		x.note("home", problem, "make it readable for you", "%v", err)
		wrong = true
	}
	x.modes(exposed)
	x.enclosed(enclosed)
	x.leftovers(left)
	return wrong || len(exposed) > 0 || len(left) > 0
}

// enclosed mentions logs of another program that others may read by their mode and cannot
// reach.
func (x *examination) enclosed(logs []open) {
	if len(logs) == 0 {
		return
	}
	x.note("home", warning, "nothing has to be done; 'agentctl doctor --fix' narrows the modes", "%d logs of the external thread tool have a mode such as %o (%s); their directory keeps other users out",
		len(logs), logs[0].mode, boundary.Name(logs[0].rel))
	x.mend(fmt.Sprintf("narrow the modes of %d logs", len(logs)), func(context.Context) error {
		return x.within(func(r *os.Root) error {
			var errs []error
			for _, f := range logs {
				if err := r.Chmod(f.rel, f.own); !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		})
	})
}

// modes narrows what others can get at.
func (x *examination) modes(exposed []open) {
	for i, f := range exposed {
		path := boundary.Name(filepath.Join(x.home.Path(), f.rel))
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
		len(left), boundary.Name(filepath.Join(x.home.Path(), left[0])))
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
