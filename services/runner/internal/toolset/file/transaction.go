package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filetree"
	"github.com/theclaw/agents/internal/outputdir"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxManifest bounds a manifest, in bytes: paths and result come from the arguments of a
	// call, and escapes make them up to six times as long.
	maxManifest = 16 << 20
)

// outputDir is where the runner writes in a working directory.
const outputDir = outputdir.Dir

// The files of a transaction next to the numbered contents.
const (
	manifestFile = "manifest"
	readyFile    = "ready"
)

// entry is a file of a transaction.
type entry struct {
	Path   string      `json:"path"`
	Before string      `json:"before,omitempty"` // digest; empty: there was no file
	After  string      `json:"after,omitempty"`  // digest; empty: the file is removed
	Mode   fs.FileMode `json:"mode"`
	Diff   string      `json:"diff,omitempty"` // how the change was made, for people
}

// change is an entry with its contents.
type change struct {
	entry
	before, after []byte
	uid, gid      int
}

// transaction is the staged changes of one call. Its manifest is what is exported.
type transaction struct {
	dir          *dir
	name, before string // the directories of the new and the previous contents

	Call  string  `json:"call"` // digest of tool and arguments
	Text  string  `json:"text"` // the result
	Files []entry `json:"files"`
}

// stagedDir is the directory of the new contents of a call, beforeDir of the previous ones.
func stagedDir(c toolset.Call) string { return path.Join(outputDir, ".tx-"+outputdir.Digest(c.Key)) }
func beforeDir(c toolset.Call) string { return path.Join(outputDir, previousName(c.Key)) }

// previousName is the name of the directory of the previous contents of a call.
func previousName(key string) string { return "before-" + outputdir.Digest(key) }

func callDigest(c toolset.Call) string { return digest([]byte(c.Name + "\x00" + string(c.Args))) }

// put is the change that writes a file; info is what is there, with the content before.
func (d *dir) put(name string, info fs.FileInfo, before, after []byte) change {
	ch := change{entry{Path: name, After: digest(after), Mode: 0o644}, before, after, d.uid, d.gid}
	if info != nil {
		ch.Before, ch.Mode = digest(before), info.Mode().Perm()
		ch.uid, ch.gid = owner(info)
	}
	return ch
}

// remove is the change that removes a file.
func remove(name string, info fs.FileInfo, before []byte) change {
	return change{entry: entry{Path: name, Before: digest(before), Mode: info.Mode().Perm()}, before: before}
}

// resume returns the transaction that an earlier run of a call has committed; nil: none.
func resume(d *dir, c toolset.Call) (*transaction, error) {
	name := path.Join(stagedDir(c), readyFile)
	f, err := filetree.Open(d.Root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("no file was changed, repair %s with a command: %w", outputDir, problem(name, err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("no file was changed: %w", problem(name, err))
	}
	tx := &transaction{dir: d, name: stagedDir(c), before: beforeDir(c)}
	// A program can write here. What it can do with a manifest of its own is what it can do
	// to the files of the working directory.
	if json.Unmarshal(b, tx) != nil || tx.Call != callDigest(c) ||
		slices.ContainsFunc(tx.Files, func(e entry) bool { return !filepath.IsLocal(e.Path) }) {
		return nil, nil
	}
	return tx, nil
}

// stage writes the new and the previous contents, durably. After an error nothing is left
// of it but the directories.
func stage(d *dir, c toolset.Call, changes []change, text string) (_ *transaction, err error) {
	tx := &transaction{dir: d, name: stagedDir(c), before: beforeDir(c), Call: callDigest(c), Text: text}
	defer func() {
		if err != nil {
			tx.remove()
			err = fmt.Errorf("the change cannot be prepared, no file was changed: %w", err)
		}
	}()
	if err := d.mkdirAll(outputDir, 0o700); err != nil {
		return nil, err
	}
	outputdir.Prune(d.Root, toolset.Keep(c.Place.Config), time.Now())
	compare(changes)
	for _, name := range []string{tx.name, tx.before} { // of a run that has not committed
		if err := errors.Join(d.RemoveAll(name), d.Mkdir(name, 0o700)); err != nil {
			return nil, problem(name, err)
		}
		if err := d.own(name, d.uid, d.gid); err != nil {
			return nil, problem(name, err)
		}
	}
	for i, ch := range changes {
		tx.Files = append(tx.Files, ch.entry)
		number := strconv.Itoa(i)
		if ch.After != "" {
			if err := d.write(path.Join(tx.name, number), ch.after, ch.Mode, ch.uid, ch.gid); err != nil {
				return nil, err
			}
		}
		if ch.Before != "" {
			if err := d.write(path.Join(tx.before, number), ch.before, 0o600, d.uid, d.gid); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range []string{tx.before, tx.name} {
		manifest, err := json.Marshal(tx)
		if err != nil {
			return nil, err
		}
		if err := d.write(path.Join(name, manifestFile), manifest, 0o600, d.uid, d.gid); err != nil {
			return nil, err
		}
		for i := range tx.Files { // explain reads them in the first one; the second one is in snapshots
			tx.Files[i].Diff = ""
		}
	}
	return tx, d.sync(tx.name, tx.before, outputDir, ".")
}

// commit decides that the transaction will be applied.
func (tx *transaction) commit() error {
	if err := tx.dir.Rename(path.Join(tx.name, manifestFile), path.Join(tx.name, readyFile)); err != nil {
		tx.remove()
		return fmt.Errorf("the change cannot be prepared, no file was changed: %w", problem(tx.name, err))
	}
	_ = tx.dir.sync(tx.name) // the change is decided; apply reports a disk that fails
	return nil
}

// apply brings the files to their content after. A file that has neither that nor its
// content before is left as it is, and named in the error; when no file was brought to its content
// after yet, none is changed and the transaction is removed.
func (tx *transaction) apply() error {
	var open []int
	var foreign []string
	placed := false // a file that another writer has changed since: its new content is not staged any more
	for i, e := range tx.Files {
		switch tx.dir.digest(e.Path) {
		case e.After:
		case e.Before:
			open = append(open, i)
		default:
			foreign = append(foreign, shown(e.Path))
			_, err := tx.dir.Lstat(path.Join(tx.name, strconv.Itoa(i)))
			placed = placed || e.After != "" && errors.Is(err, fs.ErrNotExist)
		}
	}
	if len(foreign) > 0 && !placed && len(open)+len(foreign) == len(tx.Files) {
		tx.remove()
		return fmt.Errorf("%s was changed by another writer while the change was prepared: no file was changed, read it again and repeat the change", strings.Join(foreign, ", "))
	}
	for n, i := range open {
		if n > 0 {
			fault.Point("file:placed")
		}
		if err := tx.place(i); err != nil {
			return fmt.Errorf("%w; %d of %d files are changed, and the others are not: read them before you go on", err, len(tx.Files)-len(foreign)-len(open)+n, len(tx.Files))
		}
	}
	if err := tx.dir.sync(tx.parents()...); err != nil {
		return err
	}
	if len(foreign) > 0 {
		return fmt.Errorf("%s was changed by another writer during the change, and is left as it was; the other files of the call are changed: read it again and make the rest of the change", strings.Join(foreign, ", "))
	}
	return nil
}

// remove removes what was staged. What cannot be removed is removed by a later change.
func (tx *transaction) remove() {
	_ = tx.dir.RemoveAll(tx.name)
	_ = tx.dir.RemoveAll(tx.before)
}

// parents are the directories whose names the transaction may have changed, in this run or
// in one that was killed before they were durable.
func (tx *transaction) parents() []string {
	found := map[string]bool{}
	for _, e := range tx.Files {
		for up := path.Dir(e.Path); !found[up]; up = path.Dir(up) { // the last one is "."
			found[up] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// place brings one file to its content after.
func (tx *transaction) place(i int) error {
	e, d := tx.Files[i], tx.dir
	if e.After == "" {
		if err := d.Remove(e.Path); err != nil {
			return problem(e.Path, err)
		}
		return nil
	}
	staged := path.Join(tx.name, strconv.Itoa(i))
	if d.digest(staged) != e.After {
		return fmt.Errorf("%s cannot be changed: its new content was removed from %s", shown(e.Path), tx.name)
	}
	if err := d.mkdirAll(path.Dir(e.Path), 0o755); err != nil {
		return err
	}
	if err := d.Rename(staged, e.Path); err != nil {
		return problem(e.Path, err)
	}
	return nil
}

// digest is the digest of the file at a path: empty when nothing is there, and none when it
// cannot be a file of a transaction.
func (d *dir) digest(name string) string {
	const none = "none"
	info, err := d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return none
	}
	b, err := d.content(name, info)
	if err != nil {
		return none
	}
	return digest(b)
}

// write writes a new file, durably but for its name.
func (d *dir) write(name string, b []byte, mode fs.FileMode, uid, gid int) error {
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return problem(name, err)
	}
	_, err = f.Write(b)
	if gives(uid) {
		err = errors.Join(err, f.Chown(uid, gid))
	}
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return problem(name, err)
	}
	return nil
}

// gives reports whether a file is to be given to a user. Only root can, and programs in the
// sandbox are not root.
func gives(uid int) bool { return os.Geteuid() == 0 && uid != 0 }

// own gives a directory to a user.
func (d *dir) own(name string, uid, gid int) error {
	if !gives(uid) {
		return nil
	}
	return d.Lchown(name, uid, gid)
}

// mkdirAll makes a directory and those above it.
func (d *dir) mkdirAll(name string, mode fs.FileMode) error {
	at := "."
	for e := range strings.SplitSeq(name, "/") {
		next := path.Join(at, e)
		switch err := d.Mkdir(next, mode); {
		case err == nil:
			if err := d.own(next, d.uid, d.gid); err != nil {
				return problem(next, err)
			}
		case !errors.Is(err, fs.ErrExist):
			return problem(next, err)
		}
		at = next
	}
	return nil
}

// sync makes the names in directories durable. One that was removed meanwhile has none.
func (d *dir) sync(names ...string) error {
	for _, name := range names {
		f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0) // a pipe is not waited for
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return problem(name, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return problem(name, err)
		}
	}
	return nil
}
