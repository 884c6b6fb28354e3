package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filetree"
)

// stage is where agents are put together, on the file system they will be on.
// It has the name and the lock of an unfinished agent, so what a killed restore
// leaves is removed like that.
type stage struct {
	home *agentdir.Home
	dir  string
	root *os.Root
	lock *os.File

	last    *os.Root // the directory of the newest file; nil: there is none
	lastDir string
}

func newStage(home *agentdir.Home) (*stage, error) {
	s := &stage{home: home, dir: filepath.Join(home.AgentsDir(), ".restore.tmp-"+strings.ToLower(rand.Text()))}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.root, err = os.OpenRoot(s.dir); err == nil {
		if s.lock, err = s.root.Open("."); err == nil {
			err = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close removes all that was not placed.
func (s *stage) close() error {
	err := os.RemoveAll(s.dir)
	if s.last != nil {
		err = errors.Join(err, s.last.Close())
	}
	if s.root != nil {
		err = errors.Join(err, s.root.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// directories are those that every agent has.
var directories = []string{"inbox", "logs", "memory", "sessions", "workdir", "threads/channels", "threads/main", "threads/peers", "threads/sessions"}

// magic begins every database.
const magic = "SQLite format 3\x00"

// put writes one file below the agent's name.
func (s *stage) put(id, rest string, e *tar.Header, body io.Reader) (err error) {
	name := path.Join(id, rest)
	if archive.IsDatabase(rest) { // SQLite would take a short file for an empty database
		r := bufio.NewReader(body)
		if b, err := r.Peek(len(magic)); err != nil || string(b) != magic {
			return archive.Damaged(e.Name + " is no database")
		}
		body = r
	}
	dir, err := s.within(path.Dir(name))
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if strings.HasPrefix(rest, "workdir/") {
		mode |= fs.FileMode(e.Mode) & 0o100
	}
	f, err := dir.OpenFile(path.Base(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, body); err != nil {
		return err
	}
	return f.Sync()
}

// within opens a directory of the stage and makes it where it is missing. The files of an
// archive follow each other in the order of a walk: from the directory of one to that of
// the next it is rarely far, however deep both are.
func (s *stage) within(dir string) (*os.Root, error) {
	from, rest := s.root, dir
	if s.last != nil {
		if dir == s.lastDir {
			return s.last, nil
		}
		if below, ok := strings.CutPrefix(dir, s.lastDir+"/"); ok {
			from, rest = s.last, below
		}
	}
	err := from.MkdirAll(rest, 0o700)
	if err != nil {
		return nil, err
	}
	root, err := from.OpenRoot(rest)
	if err != nil {
		return nil, err
	}
	if s.last != nil {
		_ = s.last.Close() // its files are synced
	}
	s.last, s.lastDir = root, dir
	return root, nil
}

// finish completes what the files of an agent alone do not say.
func (s *stage) finish(m archive.Manifest, ids []string) error {
	for _, name := range m.Directories {
		id, rest, err := archive.Split(string(name))
		if err != nil || !strings.HasPrefix(rest, "workdir/") {
			return archive.Damaged(fmt.Sprintf("%.200q is no directory of a backup", string(name)))
		}
		if slices.Contains(ids, id) {
			if _, err := s.within(path.Join(id, rest)); err != nil {
				return fmt.Errorf("restore %s: %w", boundary.Name(string(name)), err)
			}
		}
	}
	for _, e := range m.Files {
		id, rest, err := archive.Split(string(e.Name))
		if err != nil || !e.Torn || !slices.Contains(ids, id) {
			continue
		}
		if err := s.cut(path.Join(id, rest), e.Read); err != nil {
			return fmt.Errorf("restore %s: %w", boundary.Name(string(e.Name)), err)
		}
	}
	return nil
}

// cut removes the zeros after what was read of a file.
func (s *stage) cut(name string, size int64) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// sync puts every name of an agent on disk.
func (s *stage) sync(ctx context.Context, id string) error {
	var failed error
	fsync := func(dir *os.Root, name string) error {
		f, err := dir.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	}
	// From the agent's directory, as the backup was made: the paths are not longer here.
	root, err := s.root.OpenRoot(id)
	if err != nil {
		return err
	}
	err = filetree.Walk(ctx, root, ".", func(e filetree.Entry) error {
		if !e.Info.IsDir() {
			return nil
		}
		return fsync(e.Dir, e.Name())
	}, func(name string, err error) {
		failed = errors.Join(failed, fmt.Errorf("sync %s: %w", boundary.Name(id+"/"+name), err))
	})
	return errors.Join(err, failed, fsync(root, "."), root.Close())
}

// place gives a finished agent its name. undo takes it away again; kept is where
// the one that was replaced lies.
func (s *stage) place(id, as string, replace bool) (kept string, undo func() error, err error) {
	from, to := filepath.Join(s.dir, id), s.home.AgentDir(as)
	err = os.Rename(from, to)
	if err == nil {
		return "", func() error { return os.Rename(to, from) }, nil
	}
	if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.ENOTDIR) {
		return "", nil, err
	}
	if !replace {
		return "", nil, exists(as)
	}
	kept = filepath.Join(s.home.AgentsDir(), "."+as+".replaced-"+time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := exchange(from, to); err != nil {
		return "", nil, err
	}
	if err := os.Rename(from, kept); err != nil {
		return "", nil, errors.Join(err, exchange(from, to))
	}
	return kept, func() error { return errors.Join(os.Rename(to, from), os.Rename(kept, to)) }, nil
}

func exists(id string) error {
	e := fault.New(codes.AlreadyExists, fault.AgentExists, fmt.Sprintf("agent '%s' exists already", id),
		"stop it and use --replace, or give the restored one another name with --as")
	e.Meta = map[string]string{"agent_id": id}
	return e
}
