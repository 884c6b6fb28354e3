package core

import (
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
)

// CheckDisk refuses new messages and new claims while there is little space: what
// is under way must still come to its end.
func (c *Core) CheckDisk() error {
	var st unix.Statfs_t
	if err := unix.Statfs(c.Home.Path(), &st); err != nil {
		return agentdir.Fault(err)
	}
	if int64(st.Bavail)*st.Bsize >= c.minFree {
		return nil
	}
	f := fault.New(codes.ResourceExhausted, fault.DiskFull, "the disk has too little free space to begin anything new", "free some space; nothing was stored and nothing is lost")
	f.RetryAfter = full
	return f
}
