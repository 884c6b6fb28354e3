package conn

import (
	"sync"

	"modernc.org/libc"
)

// stacks are what calls of the engine run on, between two calls: the engine is C that was
// translated, and its local variables are in memory of libc, 28 KB after some calls. They are
// shared, because many more databases are open than are used at one time; the one that was used
// last is used first, so that few are needed.
var stacks struct {
	mu   sync.Mutex
	list []*libc.TLS
}

const maxStacks = 32

func takeStack() *libc.TLS {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	n := len(stacks.list)
	if n == 0 {
		return libc.NewTLS()
	}
	t := stacks.list[n-1]
	stacks.list = stacks.list[:n-1]
	return t
}

func giveStack(t *libc.TLS) {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	if len(stacks.list) >= maxStacks || t.StackSlots() != 0 { // left in the middle, by a panic
		t.Close()
		return
	}
	stacks.list = append(stacks.list, t)
}

// dropStacks gives up those that no call is running on.
func dropStacks() {
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	for _, t := range stacks.list {
		t.Close()
	}
	stacks.list = nil
}

// enter is called before the engine is, and leave after it. A function that is called for a row
// calls it again.
func (c *native) enter() {
	if c.depth++; c.depth == 1 {
		c.tls = takeStack()
	}
}

func (c *native) leave() {
	if c.depth--; c.depth == 0 {
		giveStack(c.tls)
		c.tls = nil
	}
}
