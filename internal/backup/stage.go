package backup

import (
	"archive/tar"
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/fault"
)

// stage is where agents are put together, on the file system they will be on.
// It has the name and the lock of an unfinished agent, so what a killed restore
// leaves is removed like that.
type stage struct {
	home *agentdir.Home
	dir  string
	root *os.Root
	lock *os.File
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
	if s.root != nil {
		err = errors.Join(err, s.root.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// tree lists the directories that every agent has.
var tree = []string{"inbox", "logs", "memory", "sessions", "workdir", "threads/channels", "threads/main", "threads/peers", "threads/sessions"}

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
	if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if strings.HasPrefix(rest, "workdir/") {
		mode |= fs.FileMode(e.Mode) & 0o100
	}
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, body); err != nil {
		return err
	}
	return f.Sync()
}

// sync puts every name of an agent on disk.
func (s *stage) sync(id string) error {
	return fs.WalkDir(s.root.FS(), id, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		f, err := s.root.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
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
