// Package ondisk owns how what several make at the same time comes to disk: those who
// ask while a round is under way share the next one.
//
//	ask --> waits while a round is under way --> round for all who wait --> answered
//
// It promises that everything written before the call is on disk when it returns
// without an error, and that one who is alone pays for his own files only. A round of
// several syncs the whole filesystem at once, where that is known to reach the disk;
// what else is written there is then waited for too. It makes and changes nothing.
package ondisk

import (
	"os"
	"sync"
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

// Tree brings what own would sync to disk; dir is any open file of its filesystem.
func (g *Group) Tree(dir *os.File, own func() error) error {
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
