package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// The names of the tools.
const (
	nameRead  = "read"
	nameWrite = "write"
	nameEdit  = "edit"
	namePatch = "apply_patch"
	nameGrep  = "grep"
	nameFind  = "find"
	nameLs    = "ls"
	nameSend  = "send_file"
)

// Workdirs brings working directories that move between machines.
type Workdirs interface {
	// Restore writes the newest snapshot into the directory, once under a lease.
	Restore(ctx context.Context, p toolset.Place) error
	// Save stores what is in the directory now.
	Save(ctx context.Context, p toolset.Place) error
}

// New returns the tools. With w nil, working directories do not move between machines.
func New(w Workdirs) []toolset.Tool {
	f := &files{workdirs: w}
	return []toolset.Tool{
		&reader{f, readSpec, f.read},
		&reader{f, grepSpec, texts(grep)},
		&reader{f, findSpec, texts(find)},
		&reader{f, lsSpec, texts(list)},
		&writer{f, writeSpec, write},
		&writer{f, editSpec, edit},
		&writer{f, patchSpec, patch},
		&sender{f},
	}
}

// files is what the tools of one runner share.
type files struct {
	workdirs Workdirs
	seen     seen
	// locks serialize the changes to one working directory: its lock is chosen by the hash
	// of its path, so that their number is fixed.
	locks [64]sync.Mutex
	// finished are the transactions that wait to be removed.
	finished finished
}

// reader is a tool that changes nothing.
type reader struct {
	*files
	spec toolset.Spec
	run  func(context.Context, *dir, toolset.Call) (toolset.Result, error)
}

// texts is run of a tool whose result is a text, which it bounds itself.
func texts(run func(context.Context, *dir, toolset.Call) (string, error)) func(context.Context, *dir, toolset.Call) (toolset.Result, error) {
	return func(ctx context.Context, d *dir, c toolset.Call) (toolset.Result, error) {
		text, err := run(ctx, d, c)
		return toolset.Result{Text: text, Bounded: true}, err
	}
}

// Spec implements [toolset.Tool].
func (r *reader) Spec() toolset.Spec { return r.spec }

// Class implements [toolset.Tool].
func (*reader) Class(toolset.Call) toolset.Class { return toolset.Read }

// Run implements [toolset.Tool].
func (r *reader) Run(ctx context.Context, c toolset.Call) toolset.Result {
	d, err := r.open(ctx, c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	defer func() { _ = d.Close() }() // it changes nothing
	result, err := r.run(ctx, d, c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	return result
}

// writer is a tool that changes files.
type writer struct {
	*files
	spec toolset.Spec
	// plan computes the changes of a call, and its result once they are made. It changes
	// nothing.
	plan func(context.Context, *dir, toolset.Call) ([]change, string, error)
}

// Spec implements [toolset.Tool].
func (w *writer) Spec() toolset.Spec { return w.spec }

// Class implements [toolset.Tool].
func (*writer) Class(toolset.Call) toolset.Class { return toolset.Idempotent }

// Run implements [toolset.Tool].
func (w *writer) Run(ctx context.Context, c toolset.Call) toolset.Result {
	d, err := w.open(ctx, c)
	if err != nil {
		return toolset.Failed(err.Error())
	}
	defer func() { _ = d.Close() }() // it changes nothing
	text, err := w.change(ctx, d, c)
	if w.moves(c) { // also after an error, which may have come between two files
		if e := w.workdirs.Save(ctx, c.Place); e != nil && err == nil {
			text += "\n[" + e.Error() + "]"
		}
	}
	if err != nil {
		return toolset.Failed(err.Error())
	}
	return toolset.Result{Text: text}
}

// Finished removes the transaction of a call whose result is in the journal. What cannot
// be removed is removed by a later change. So is a transaction that a snapshot has: without it the
// directory would differ from its snapshot, as if something had not been saved.
func (w *writer) Finished(c toolset.Call) {
	if w.moves(c) {
		w.finished.add(c.Place.Config.GetWorkdir(), stagedDir(c))
		return
	}
	root, err := os.OpenRoot(c.Place.Config.GetWorkdir())
	if err != nil {
		return // without the directory there is no transaction
	}
	_ = root.RemoveAll(stagedDir(c))
	_ = root.Close()
}

// change makes the changes of a call, or finishes those that an earlier run of the same
// call has committed.
func (w *writer) change(ctx context.Context, d *dir, c toolset.Call) (string, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(d.path)) // it never fails
	lock := &w.locks[h.Sum32()%uint32(len(w.locks))]
	lock.Lock()
	defer lock.Unlock()
	for _, name := range w.finished.take(c.Place.Config.GetWorkdir()) {
		_ = d.RemoveAll(name)
	}
	tx, err := resume(d, c)
	if err != nil {
		return "", err
	}
	if tx == nil {
		changes, text, err := w.plan(ctx, d, c)
		if err != nil {
			return "", err
		}
		for _, ch := range changes {
			if w.seen.changed(c, ch.Path, ch.Before) {
				return "", fmt.Errorf("%s was changed since you read it, by a command or another writer: no file was changed, read it again and repeat the change", shown(ch.Path))
			}
		}
		if len(changes) == 0 {
			return text, nil
		}
		if tx, err = stage(d, c, changes, text); err != nil {
			return "", err
		}
		fault.Point("file:staged")
		if err := tx.commit(); err != nil {
			return "", err
		}
		fault.Point("file:ready")
	}
	if err := tx.apply(); err != nil {
		return "", err
	}
	for _, e := range tx.Files {
		w.seen.update(c, e.Path, e.After)
	}
	return tx.Text, nil
}

// finished are transactions that the next change of a working directory removes, before its snapshot. What is not
// remembered is removed when it is old. The zero value is empty.
type finished struct {
	mu sync.Mutex
	of map[string][]string // names by working directory
}

// maxFinished is the number of directories of which transactions are remembered.
const maxFinished = 1024

func (o *finished) add(workdir, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || len(o.of) == maxFinished {
		o.of = map[string][]string{}
	}
	if !slices.Contains(o.of[workdir], name) { // it is reported again when the turn goes on after a crash
		o.of[workdir] = append(o.of[workdir], name)
	}
}

func (o *finished) take(workdir string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	names := o.of[workdir]
	delete(o.of, workdir)
	return names
}

// moves reports whether the working directory of a call moves between machines.
func (f *files) moves(c toolset.Call) bool {
	return f.workdirs != nil && c.Place.Config.GetWorkdirSync()
}

// open checks a call and opens its working directory, which is made when there is none.
func (f *files) open(ctx context.Context, c toolset.Call) (*dir, error) {
	if len(c.Args) > toolset.MaxArguments {
		return nil, fmt.Errorf("the arguments are larger than %d KiB, nothing was done: divide the call into smaller ones", toolset.MaxArguments>>10)
	}
	if ctx.Err() != nil {
		return nil, errors.New("the turn was ended, nothing was done")
	}
	if f.moves(c) {
		if err := f.workdirs.Restore(ctx, c.Place); err != nil {
			return nil, fmt.Errorf("nothing was done: %w", err)
		}
	}
	d, err := openDir(c.Place.Config.GetWorkdir())
	if err == nil {
		d.outside = c.Place.Outside
	}
	return d, err
}

// parse reads the arguments of a call, whose types the schema of the tool has checked.
func parse(c toolset.Call, into any) error {
	if err := json.Unmarshal(c.Args, into); err != nil {
		return errors.New("the arguments are not understood, nothing was done: follow the schema of the tool")
	}
	return nil
}

// turn is the part of the key of a call that names its turn.
func turn(c toolset.Call) string {
	if i := strings.LastIndex(c.Key, ":tool:"); i >= 0 {
		return c.Key[:i]
	}
	return c.Key
}

// digest is the SHA-256 of a content, in hexadecimal digits.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
