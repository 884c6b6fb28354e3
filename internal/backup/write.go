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
	"syscall"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filetree"
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
			return ofAgent(id, err)
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

// ofAgent names the agent in an error, whose text does not have it everywhere.
func ofAgent(id string, err error) error {
	err = agentdir.Fault(fmt.Errorf("back up agent %s: %w", id, err))
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || strings.Contains(e.What, "'"+id+"'") {
		return err
	}
	named := *e
	named.What = "agent '" + id + "' cannot be backed up: " + e.What
	return fault.Wrap(&named, err)
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
	names    int // bytes of the names in the manifest
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
	tops := []string{"IDENTITY.md", "USAGE.md", "config.yaml", "memory", "sessions", "media"}
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
	torn, err := w.file(path.Join("agents", id, thread, archive.Database), f)
	if torn != "" { // of our own copy, without which the backup is worth nothing
		err = fmt.Errorf("read the copy of thread %s: %s", thread, torn)
	}
	return errors.Join(err, os.Remove(to), f.Close())
}

// files copies a file, or every regular file below a directory. Links are left
// out: what they lead to is not the agent's. What is left out is noted, and ends nothing.
func (w *writer) files(ctx context.Context, root *os.Root, id, top string) error {
	t := tree{w: w, agent: id, full: map[string]bool{}}
	err := filetree.Walk(ctx, root, top, func(e filetree.Entry) error {
		if e.Info.IsDir() {
			t.directory(e.Path)
			return nil
		}
		if strings.HasPrefix(e.Name(), ".") && top != "workdir" { // half-written ones
			return nil
		}
		return t.file(e)
	}, func(name string, err error) { t.leave(name, true, err.Error()) })
	if top == "workdir" {
		t.empty()
	}
	return err
}

// tree is what files copies.
type tree struct {
	w     *writer
	agent string
	dirs  []string
	names int             // bytes of them
	full  map[string]bool // directories that come with what they hold
}

func (t *tree) name(rest string) string { return path.Join("agents", t.agent, rest) }

func (t *tree) leave(rest string, missing bool, why string) {
	t.w.leave(archive.LeftOut{Agent: t.agent, Path: archive.Name(rest), Why: why, Missing: missing})
}

func (t *tree) directory(name string) {
	t.fill(path.Dir(name))
	if t.names += len(name); t.names > maxNames {
		t.leave(name, true, tooMany)
		return
	}
	t.dirs = append(t.dirs, name)
}

func (t *tree) fill(dir string) {
	for ; !t.full[dir] && dir != "."; dir = path.Dir(dir) {
		t.full[dir] = true
	}
}

// empty notes the directories in which there is no file.
func (t *tree) empty() {
	for _, dir := range t.dirs {
		name := t.name(dir)
		if _, _, err := archive.Split(name); err != nil || t.full[dir] {
			continue
		}
		if !t.w.room(name) {
			t.leave(dir, true, tooMany)
			continue
		}
		t.w.manifest.Directories = append(t.w.manifest.Directories, archive.Name(name))
	}
}

func (t *tree) file(e filetree.Entry) error {
	if !e.Info.Mode().IsRegular() {
		t.leave(e.Path, false, "it is "+filetree.Kind(e.Info.Mode()))
		return nil
	}
	name := t.name(e.Path)
	if _, _, err := archive.Split(name); err != nil { // no restore would take it
		t.leave(e.Path, true, "the name has no place in a backup")
		return nil
	}
	if why := holes(e.Info); why != "" {
		t.leave(e.Path, true, why)
		return nil
	}
	if !t.w.room(name) {
		t.leave(e.Path, true, tooMany)
		return nil
	}
	f, err := e.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.leave(e.Path, true, filetree.Cause(err).Error())
		return nil
	}
	t.fill(path.Dir(e.Path))
	torn, err := t.w.file(name, f)
	if torn != "" {
		t.leave(e.Path, true, torn)
	}
	return errors.Join(err, f.Close())
}

// holes says why a file that consists of holes is left out: it would fill a disk wherever
// it is read.
func holes(info fs.FileInfo) string {
	const large = 1 << 30
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Size() < large || st.Blocks*512 >= info.Size()/8 {
		return ""
	}
	return fmt.Sprintf("it is sparse: %d bytes, of which %d are on the disk", info.Size(), st.Blocks*512)
}

// maxNames bounds the names in a manifest, in bytes.
const (
	maxNames = 64 << 20
	tooMany  = "the names in the backup have more than 64 MiB already"
)

// room reports whether the manifest has room for one more name.
func (w *writer) room(name string) bool {
	if w.names+len(name) > maxNames {
		return false
	}
	w.names += len(name)
	return true
}

func (w *writer) leave(l archive.LeftOut) {
	if l.Missing {
		w.manifest.Missing++
	}
	if len(w.manifest.LeftOut) >= archive.MaxLeftOut || !w.room(string(l.Path)) {
		w.manifest.More++
		return
	}
	w.manifest.LeftOut = append(w.manifest.LeftOut, l)
}

// file writes one entry. The size is fixed when it begins: a file that grows is cut there,
// one that shrinks or cannot be read to its end is filled with zeros, and noted in torn.
func (w *writer) file(name string, f *os.File) (torn string, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	in := &padded{in: f}
	if err := w.entry(name, info.Size(), int64(0o600|info.Mode().Perm()&0o100), in); err != nil || in.read == info.Size() {
		return "", err
	}
	e := &w.manifest.Files[len(w.manifest.Files)-1]
	e.Torn, e.Read = true, in.read
	why := "it became shorter while it was read"
	if in.err != nil {
		why = filetree.Cause(in.err).Error()
	}
	return fmt.Sprintf("%s; the first %d of %d bytes are in the backup", why, in.read, info.Size()), nil
}

// padded reads a file, and zeros after its end.
type padded struct {
	in   io.Reader
	done bool
	read int64 // of the file
	err  error // that ended it; nil: its end
}

func (p *padded) Read(b []byte) (int, error) {
	if p.done {
		clear(b)
		return len(b), nil
	}
	n, err := p.in.Read(b)
	p.read += int64(n)
	if err != nil {
		p.done = true
		if !errors.Is(err, io.EOF) {
			p.err = err
		}
	}
	return n, nil
}

func (w *writer) entry(name string, size, mode int64, r io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: w.now, Format: tar.FormatPAX}
	if !utf8.ValidString(name) { // as POSIX has it
		h.PAXRecords = map[string]string{"hdrcharset": "BINARY"}
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", boundary.Name(name), err)
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w.tar, sum), io.LimitReader(r, size)); err != nil {
		return fmt.Errorf("write %s: %w", boundary.Name(name), err)
	}
	w.manifest.Files = append(w.manifest.Files, archive.Entry{Name: archive.Name(name), Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
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
