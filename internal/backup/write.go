package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/snapshot"
)

// Source is where a backup is made.
type Source struct {
	Home *agentdir.Home
	// Tokens answers the greatest token granted for each lease resource; it is
	// called when everything else has been copied.
	Tokens func(context.Context) (map[string]uint64, error)
	// Bring, when set, makes the directory of an agent in Home, which has none else, and
	// is called for each when its turn comes; the directory is removed when it was copied.
	// All agents are named then.
	Bring func(ctx context.Context, id string) error
}

// Selection is what a backup holds.
type Selection struct {
	Agents  []string // empty: all
	Workdir bool     // the regular files of the working directories too
}

// Scratch is the beginning of the names of directories for copies below run/.
const Scratch = "backup-"

// Sweep removes what a backup that was killed left in the home. Whoever calls it
// holds the home's lock and makes no backup.
func Sweep(home *agentdir.Home) error {
	found, err := filepath.Glob(filepath.Join(home.RunDir(), Scratch+"*"))
	for _, dir := range found {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Write writes a backup. Errors: AGENT_NOT_FOUND, DATABASE_CORRUPT, those of
// [agentdir.Fault] and of out.
func Write(ctx context.Context, out io.Writer, from Source, what Selection) (err error) {
	ids := slices.Compact(slices.Sorted(slices.Values(what.Agents)))
	for _, id := range ids {
		dir, err := from.Home.Agent(id)
		if err == nil && from.Bring == nil {
			err = dir.Check()
		}
		if err != nil {
			return err
		}
	}
	if len(ids) == 0 && from.Bring == nil {
		if ids, err = from.Home.IDs(); err != nil {
			return err
		}
	}
	copies, err := os.MkdirTemp(from.Home.RunDir(), Scratch)
	if err != nil {
		return agentdir.Fault(fmt.Errorf("make room for copies: %w", err))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(copies)) }()
	w := &writer{tar: tar.NewWriter(out), copies: copies, now: time.Now().UTC()}
	h := archive.Head{Format: archive.Format, CreatedAt: w.now, Agents: ids, Workdir: what.Workdir}
	if err := w.json(archive.HeadName, h); err != nil {
		return err
	}
	for _, id := range ids {
		if err := w.brought(ctx, from, id, what.Workdir); err != nil {
			return agentdir.Fault(fmt.Errorf("back up agent %s: %w", id, err))
		}
	}
	if w.manifest.Tokens, err = tokens(ctx, from, ids); err != nil {
		return err
	}
	if err := w.json(archive.ManifestName, w.manifest); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return fmt.Errorf("end backup: %w", err)
	}
	return nil
}

func tokens(ctx context.Context, from Source, ids []string) (map[string]uint64, error) {
	all, err := from.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("read lease tokens: %w", err)
	}
	out := map[string]uint64{}
	for _, id := range ids {
		for _, r := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
			if t, ok := all[r]; ok {
				out[r] = t
			}
		}
	}
	return out, nil
}

type writer struct {
	tar      *tar.Writer
	copies   string
	now      time.Time
	manifest archive.Manifest
}

func (w *writer) brought(ctx context.Context, from Source, id string, workdir bool) error {
	if from.Bring == nil {
		return w.agent(ctx, from.Home, id, workdir)
	}
	err := from.Bring(ctx, id)
	if err == nil {
		err = w.agent(ctx, from.Home, id, workdir)
	}
	return errors.Join(err, os.RemoveAll(from.Home.AgentDir(id)))
}

func (w *writer) agent(ctx context.Context, home *agentdir.Home, id string, workdir bool) error {
	dir, err := home.Agent(id)
	if err != nil {
		return err
	}
	if err := w.thread(ctx, id, "inbox", inboxOf(home, dir)); err != nil {
		return err
	}
	for after := ""; ; {
		const some = 1000
		threads, err := dir.ListThreads(ctx, after, some)
		if err != nil {
			return err
		}
		for _, t := range threads {
			path, err := dir.Thread(t)
			if err == nil {
				err = w.thread(ctx, id, t, path)
			}
			if err != nil {
				return err
			}
			after = t
		}
		if len(threads) < some {
			break
		}
	}
	root, err := os.OpenRoot(dir.Path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	tops := []string{"IDENTITY.md", "USAGE.md", "config.yaml", "memory", "sessions"}
	if workdir {
		tops = append(tops, "workdir")
	}
	for _, top := range tops {
		if err := w.files(ctx, root, id, top); err != nil {
			return err
		}
	}
	return nil
}

// thread copies one database; one that was removed meanwhile is no error, but an
// agent without an inbox is.
func (w *writer) thread(ctx context.Context, id, thread, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	to := filepath.Join(w.copies, archive.Database)
	err := snapshot.Copy(ctx, dir, to)
	switch {
	case errors.Is(err, store.ErrNotFound) && thread != "inbox":
		return nil
	case errors.Is(err, store.ErrCorrupt):
		return errors.Join(fault.Wrap(fault.New(codes.DataLoss, fault.DatabaseCorrupt, "thread '"+thread+"' of agent '"+id+"' has a damaged database",
			"run 'agentctl fsck --repair --agent "+id+"' without the services, or back up the other agents with --agent"), err), os.Remove(to))
	case err != nil:
		return err
	}
	f, err := os.Open(to)
	if err != nil {
		return err
	}
	// A name less is a file less to be left behind.
	err = errors.Join(os.Remove(to), w.file(path.Join("agents", id, thread, archive.Database), f))
	return errors.Join(err, f.Close())
}

// files copies a file, or every regular file below a directory. Links are left
// out: what they lead to is not the agent's.
func (w *writer) files(ctx context.Context, root *os.Root, id, top string) error {
	return fs.WalkDir(root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist): // removed while we look
			return nil
		case err != nil:
			return err
		case !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") && top != "workdir": // half-written ones
			return nil
		}
		full := path.Join("agents", id, name)
		if _, _, err := archive.Split(full); err != nil {
			return nil // a name that no restore would take
		}
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(w.file(full, f), f.Close())
	})
}

// file writes one entry. The size is fixed when it begins: a file that grows is
// cut there, one that shrinks ends the backup, for it would be torn.
func (w *writer) file(name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.entry(name, info.Size(), int64(0o600|info.Mode().Perm()&0o100), f)
}

func (w *writer) entry(name string, size, mode int64, r io.Reader) error {
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: w.now, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, sum), io.LimitReader(r, size))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if n != size {
		return fault.New(codes.Aborted, fault.InvalidArgument, name+" shrank while it was read", "try again")
	}
	w.manifest.Files = append(w.manifest.Files, archive.Entry{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

func (w *writer) json(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	keep := w.manifest.Files
	err = w.entry(name, int64(len(b)), 0o600, strings.NewReader(string(b)))
	w.manifest.Files = keep // of agents only
	return err
}
