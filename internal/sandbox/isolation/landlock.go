package isolation

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// The least Landlock ABI by driver. Where Landlock is the only wall it must cover
// signals and abstract sockets (6); bubblewrap and privileged work without any.
const (
	abiFull    = 1
	abiReduced = 6
)

// LandlockABI is the kernel's version, 0 when Landlock is missing or switched off.
func LandlockABI() int {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(v)
}

// restrictPaths puts this process under Landlock. The version asked for is the one
// the kernel has, so a right that cannot be enforced is an error: the library's
// best-effort mode succeeds even when it enforces nothing.
func restrictPaths(o wire.Order) error {
	abi, need := LandlockABI(), 0
	switch o.Driver {
	case wire.Full:
		need = abiFull
	case wire.Reduced:
		need = abiReduced
	}
	if abi < need {
		return fmt.Errorf("the kernel offers ABI %d, %d is needed: %w", abi, need, errors.ErrUnsupported)
	}
	if abi == 0 {
		return nil // the mounts alone must do, as both drivers say
	}
	versions := []landlock.Config{
		landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
		landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
	}
	cfg := versions[min(abi, len(versions))-1]

	read, write := []string{"/"}, []string{o.Workdir, "/tmp"}
	if o.Driver == wire.Reduced {
		read, write = append(VisiblePaths(o), "/proc"), []string{o.Workdir, o.Temp}
		if o.Network {
			read = append(read, NetworkFiles...)
		}
	}
	refer := func(r landlock.FSRule) landlock.Rule {
		if abi < 2 {
			return r // version 1 has no such right and refuses moves between directories
		}
		return r.WithRefer()
	}
	rules := []landlock.Rule{
		landlock.RODirs(existing(read, true)...),
		landlock.ROFiles(existing(read, false)...),
		refer(landlock.RWDirs(existing(write, true)...)),
		landlock.RWFiles(existing(devices, false)...),
	}
	// Without a network there is nothing to reach, and with one it is open.
	cfg.HandledAccessNet = 0
	return cfg.Restrict(rules...)
}

func existing(paths []string, dirs bool) []string {
	var out []string
	for _, p := range paths {
		if st, err := os.Stat(p); err == nil && st.IsDir() == dirs {
			out = append(out, p)
		}
	}
	return out
}
