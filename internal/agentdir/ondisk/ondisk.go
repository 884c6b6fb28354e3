// Package ondisk owns how what several make at the same time comes to disk: those who
// ask while a round is under way share the next one.
//
//	ask --> waits while a round is under way --> round for all who wait --> answered
//
// It promises that everything written before the call is on disk when it returns
// without an error, and that one who is alone pays for his own files only. A round of
// several syncs the whole filesystem at once, where that is known to reach the disk;
// what else is written there is then waited for too. It makes no files, and changes
// nothing but their modes.
package ondisk

import (
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/agentdir/safefile"
)

// many who ask at once are cheaper served by a sync of everything.
const many = 4

// Group is those who ask. The zero value is ready.
type Group struct {
	mu      sync.Mutex
	waiting []*ask

	turn sync.Mutex // held in a round
}

type ask struct {
	own  func() error
	done bool
	err  error
}

// Tree narrows every mode below a directory to 0700 and 0600 and brings it to disk:
// those of several who ask together, one alone file by file, all at once, which takes a
// disk about the time of one. dir is the same directory.
func (g *Group) Tree(root *os.Root, dir *os.File) error {
	var names []string
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			mode = 0o700
		case !entry.Type().IsRegular():
			return fmt.Errorf("check %s: not a file or directory", name)
		}
		names = append(names, name)
		return root.Chmod(name, mode)
	})
	if err != nil {
		return err
	}
	return g.tree(dir, func() error {
		var all errgroup.Group
		for _, name := range names {
			all.Go(func() error { return safefile.SyncDir(root, name) })
		}
		return all.Wait()
	})
}

// tree brings what own would sync to disk.
func (g *Group) tree(dir *os.File, own func() error) error {
	if !reaches(dir) {
		return own()
	}
	return g.join(own, func(round []*ask) {
		if len(round) < many || whole(dir) != nil { // each then learns of his own files
			for _, a := range round {
				a.err = a.own()
			}
		}
	})
}

// Name brings the entries of one directory, the same for all who ask, to disk.
func (g *Group) Name(sync func() error) error {
	return g.join(sync, func(round []*ask) {
		err := sync()
		for _, a := range round {
			a.err = err
		}
	})
}

// join waits for its turn; who was served in the round before has nothing left to do.
func (g *Group) join(own func() error, serve func([]*ask)) error {
	me := &ask{own: own}
	g.mu.Lock()
	g.waiting = append(g.waiting, me)
	g.mu.Unlock()
	g.turn.Lock()
	defer g.turn.Unlock()
	if me.done {
		return me.err
	}
	g.mu.Lock()
	round := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	serve(round)
	for _, a := range round {
		a.done = true
	}
	return me.err
}
