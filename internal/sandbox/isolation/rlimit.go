package isolation

import (
	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

const (
	// initMemory is the least RLIMIT_DATA, initSpace the least RLIMIT_AS: init has
	// these limits too, and the Go runtime reserves address space it never uses.
	initMemory = 512 << 20
	initSpace  = 3 << 30
)

// SetLimits sets the rlimits of init, which the program inherits. Each is both
// the soft and the hard one.
func SetLimits(o wire.Order) error {
	l := o.Limits
	space := max(l.MemoryBytes, initSpace)
	if o.MemoryBound {
		// The cgroup counts memory that is used. Address space is then only a
		// second fence, wide enough for runtimes that reserve a lot of it.
		space = max(space, 16*l.MemoryBytes, l.AddressBytes)
	}
	set := []struct {
		what  int
		value int64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, l.FileBytes},
		{unix.RLIMIT_NOFILE, l.OpenFiles},
		{unix.RLIMIT_CPU, l.CPUSeconds},
		{unix.RLIMIT_DATA, max(l.MemoryBytes, initMemory)},
		{unix.RLIMIT_AS, space},
		{unix.RLIMIT_NPROC, o.PIDBudget},
	}
	for _, s := range set {
		if s.value == 0 && s.what != unix.RLIMIT_CORE {
			continue
		}
		v := uint64(s.value)
		var now unix.Rlimit
		if err := unix.Getrlimit(s.what, &now); err != nil {
			return err
		}
		v = min(v, now.Max) // raising the hard limit needs a right we may not have
		if err := unix.Setrlimit(s.what, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return err
		}
	}
	return nil
}
