package core

import (
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
)

// FreeDisk answers the bytes that may still be written below the home.
func (c *Core) FreeDisk() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(c.Home.Path(), &st); err != nil {
		return 0, agentdir.Fault(err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // another type on other systems
}

// CheckDisk refuses new messages and new claims while there is little space: what
// is under way must still come to its end.
func (c *Core) CheckDisk() error {
	if c.Shared != nil {
		return nil // nothing grows here: the database says so itself
	}
	free, err := c.FreeDisk()
	if err != nil {
		return err
	}
	if free >= c.minFree {
		return nil
	}
	f := fault.New(codes.ResourceExhausted, fault.DiskFull, "the disk has too little free space to begin anything new", "free some space, 'agentctl prune' says what may go; nothing was stored and nothing is lost")
	f.RetryAfter = full
	return f
}
