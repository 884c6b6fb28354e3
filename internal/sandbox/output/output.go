// Package output captures what a sandboxed program prints: one cap for both streams, a
// spill file for the rest, and text made safe to store.
//
// It promises that a program cannot choose where the spill file is: the directory
// is opened before the program starts and no link out of it is followed. It does
// not interpret output.
package output

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// SpillCap bounds a spill file, in bytes: what is above it is dropped.
const SpillCap = 64 << 20

// drainGrace is how long the streams may stay open when the tree is dead.
const drainGrace = 500 * time.Millisecond

// Collector collects stdout and stderr under one cap. The rest goes to the spill
// file, in the order it came.
type Collector struct {
	readers, writers [2]*os.File
	follow           [2]func([]byte)
	filter           func(b []byte, end bool) []byte // of stderr
	done             sync.WaitGroup

	mu        sync.Mutex
	buf       [2]bytes.Buffer
	left      int
	truncated bool
	root      *os.Root // nil: no spill
	dir       string   // in root
	base      string   // path of root
	uid, gid  int
	spill     *os.File
	spillPath string
	spillLeft int
	log       bool // the spill has everything, not only what is above the cap
}

// New opens what a spill needs before the program runs: afterwards the
// program could have put links in the way. os.Root follows none out of it.
func New(limit int, spillDir, workdir string, uid, gid int) (*Collector, error) {
	o := &Collector{left: limit, spillLeft: SpillCap, uid: uid, gid: gid}
	if spillDir == "" {
		return o, nil
	}
	o.base, o.dir = spillDir, "."
	if spillDir == workdir || strings.HasPrefix(spillDir, workdir+"/") {
		o.base = workdir
		rel, err := filepath.Rel(workdir, spillDir)
		if err != nil {
			return nil, fmt.Errorf("find spill directory: %w", err)
		}
		o.dir = rel
	}
	root, err := os.OpenRoot(o.base)
	if err != nil {
		return nil, fmt.Errorf("open spill directory: %w", err)
	}
	o.root = root
	return o, nil
}

// Open makes the streams: the program's ends of stdout and stderr.
func (o *Collector) Open() (stdout, stderr *os.File, err error) {
	for i := range o.readers {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("make output pipe: %w", err)
		}
		o.readers[i], o.writers[i] = r, w
	}
	return o.writers[0], o.writers[1], nil
}

// Follow passes the streams on as they come; a nil function follows nothing. It
// is called before Drain.
func (o *Collector) Follow(stdout, stderr func([]byte)) { o.follow = [2]func([]byte){stdout, stderr} }

// Filter replaces what comes on stderr before it is followed and collected. At the end it is called once more,
// with end set, for what it has kept back. It is called before Drain.
func (o *Collector) Filter(f func(b []byte, end bool) []byte) { o.filter = f }

// Drain starts reading; the function it returns waits for the end. A straggler
// that outlived its tree (level off) does not hold it up.
func (o *Collector) Drain() func() {
	for i := range o.readers {
		_ = o.writers[i].Close()
		o.done.Go(func() {
			b := make([]byte, 32<<10)
			for {
				n, err := o.readers[i].Read(b)
				got := b[:n]
				if i == 1 && o.filter != nil {
					got = o.filter(got, err != nil)
				}
				if o.follow[i] != nil && len(got) > 0 {
					o.follow[i](got)
				}
				o.add(i, got)
				if err != nil {
					return
				}
			}
		})
	}
	return func() {
		for _, r := range o.readers {
			_ = r.SetReadDeadline(time.Now().Add(drainGrace))
		}
		o.done.Wait()
	}
}

func (o *Collector) add(i int, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(b), o.left)
	o.buf[i].Write(b[:n])
	o.left -= n
	over := len(b) > n
	if !o.log {
		b = b[n:]
	}
	if over && !o.truncated {
		o.truncated = true
		if !o.log {
			_ = o.openSpill("output-" + strings.ToLower(rand.Text()[:12]) + ".txt")
		}
	}
	if o.spill != nil && o.spillLeft > 0 {
		b = b[:min(len(b), o.spillLeft)]
		o.spillLeft -= len(b)
		if _, err := o.spill.Write(b); err != nil {
			o.spillLeft = 0 // a full disk: the result still says that it is truncated
		}
		if o.log && o.spillLeft == 0 {
			_, _ = fmt.Fprintf(o.spill, "\n[the rest of the output is left out: a file holds %d MiB]\n", SpillCap>>20)
		}
	}
}

// Log has the complete output written to a new file in the spill directory, from the first byte
// on. It is called before Drain.
func (o *Collector) Log(name string) error {
	if o.log = true; o.root == nil || name != filepath.Base(name) {
		return errors.New("a log has a name in a directory for spills")
	}
	return o.openSpill(name)
}

// openSpill makes the file; that a spill cannot be made is no reason to stop the program.
func (o *Collector) openSpill(name string) error {
	if o.root == nil {
		return nil
	}
	if err := o.mkdir(); err != nil {
		return err
	}
	name = filepath.Join(o.dir, name)
	f, err := o.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		// The reader is the workdir's owner.
		_ = f.Chown(o.uid, o.gid)
	}
	o.spill, o.spillPath = f, filepath.Join(o.base, name)
	return nil
}

// mkdir makes the directory as the workdir's owner would.
func (o *Collector) mkdir() error {
	for i := range len(o.dir) + 1 {
		if o.dir == "." || i < len(o.dir) && o.dir[i] != filepath.Separator {
			continue
		}
		err := o.root.Mkdir(o.dir[:i], 0o700)
		if err == nil && os.Geteuid() == 0 {
			err = o.root.Lchown(o.dir[:i], o.uid, o.gid)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// An Outcome is what was collected.
type Outcome struct {
	Stdout, Stderr []byte
	Truncated      bool
	Spill          string // path of the rest, or empty
}

// Outcome is complete when the function Drain returned has.
func (o *Collector) Outcome() Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Outcome{o.buf[0].Bytes(), o.buf[1].Bytes(), o.truncated, o.spillPath}
}

// Close gives back every descriptor.
func (o *Collector) Close() {
	for _, f := range []*os.File{o.readers[0], o.readers[1], o.writers[0], o.writers[1], o.spill} {
		_ = f.Close() // a nil file answers with an error, too
	}
	if o.root != nil {
		_ = o.root.Close()
	}
}
