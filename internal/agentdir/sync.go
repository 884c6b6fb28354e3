package agentdir

import (
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/agentdir/safefile"
)

// minFilesystemSync is the number of concurrent callers from which one sync of the
// filesystem costs less than a sync of each file.
const minFilesystemSync = 4

// syncGroup brings to disk what several callers write at the same time. Those who call
// while a round is under way share the next one:
//
//	call --> waits while a round is under way --> round for all waiters --> result
//
// Everything written before the call is on disk when it returns without an error. A
// caller who is alone pays for its own files only. A round of several syncs the entire
// filesystem, where that is known to reach the disk, and so also waits for what else is
// written there. The group makes no files and changes nothing but their modes. The zero
// value is ready.
type syncGroup struct {
	mu      sync.Mutex
	waiting []*syncCall

	round sync.Mutex // held during a round
}

type syncCall struct {
	own  func() error // syncs the files of this caller alone
	done bool
	err  error
}

// syncTree narrows every mode below a directory to 0700 and 0600 and brings the tree to
// disk. A caller who is alone syncs its files one by one, but concurrently, which takes a
// disk about the time of one. dir is the same directory as root.
func (g *syncGroup) syncTree(root *os.Root, dir *os.File) error {
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
	return g.syncFiles(dir, func() error {
		var all errgroup.Group
		for _, name := range names {
			all.Go(func() error { return safefile.SyncDir(root, name) })
		}
		return all.Wait()
	})
}

// syncFiles brings to disk what own would sync.
func (g *syncGroup) syncFiles(dir *os.File, own func() error) error {
	if !filesystemSyncs(dir) {
		return own()
	}
	return g.join(own, func(calls []*syncCall) {
		if len(calls) < minFilesystemSync || syncFilesystem(dir) != nil { // then each learns about its own files
			for _, c := range calls {
				c.err = c.own()
			}
		}
	})
}

// syncEntries brings the entries of one directory, the same for all callers, to disk.
func (g *syncGroup) syncEntries(sync func() error) error {
	return g.join(sync, func(calls []*syncCall) {
		err := sync()
		for _, c := range calls {
			c.err = err
		}
	})
}

// join waits for the round under way. A caller whom that round served is done; any other
// serves all who wait by then.
func (g *syncGroup) join(own func() error, serve func([]*syncCall)) error {
	call := &syncCall{own: own}
	g.mu.Lock()
	g.waiting = append(g.waiting, call)
	g.mu.Unlock()
	g.round.Lock()
	defer g.round.Unlock()
	if call.done {
		return call.err
	}
	g.mu.Lock()
	calls := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	serve(calls)
	for _, c := range calls {
		c.done = true
	}
	return call.err
}
