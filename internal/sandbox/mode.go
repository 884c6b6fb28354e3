package sandbox

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// Mode is what the configuration asks for (sandbox.mode).
type Mode string

const (
	Required Mode = "required" // full, bubblewrap or privileged, else nothing runs; the default
	Reduced  Mode = "reduced"  // as Required, and reduced where none of these works
	Off      Mode = "off"      // programs run on the host as ourselves
)

// Level is what was found.
type Level string

const (
	LevelFull       Level = wire.Full
	LevelBubblewrap Level = wire.Bubblewrap
	LevelPrivileged Level = wire.Privileged
	LevelReduced    Level = wire.Reduced
	LevelOff        Level = wire.Off
	LevelNone       Level = "none" // nothing works: every Run is refused
)

// OwnRoot reports whether programs have a root of their own, in which a directory can be at another path than on the
// host.
func (l Level) OwnRoot() bool { return l == LevelFull || l == LevelBubblewrap || l == LevelPrivileged }

// levels are the drivers a mode tries, the best first.
func (m Mode) levels() ([]Level, error) {
	strong := []Level{LevelFull, LevelBubblewrap, LevelPrivileged}
	switch m {
	case Required, "":
		return strong, nil
	case Reduced:
		return append(strong, LevelReduced), nil
	case Off:
		return []Level{LevelOff}, nil
	}
	return nil, fault.New(codes.InvalidArgument, fault.ConfigInvalid,
		fmt.Sprintf("sandbox.mode is %q", m), "use required, reduced or off")
}

// Options are the data of New.
type Options struct {
	Mode Mode
	// ScratchDir holds what is temporary, and New sweeps it. Empty: the system's.
	ScratchDir string
	// ReadOnly are more paths to show read-only, such as a toolchain under /opt.
	ReadOnly []string
	// Forbidden are paths no program may see, such as the directory of our sockets.
	// A workdir that contains one, or lies in one, is refused.
	Forbidden []string
	// Program is the file that is started as launcher, trampoline and init, as [FindProgram] found
	// it. Empty: this program itself, whose main calls [Main].
	Program string

	levels    []Level // tests: instead of the mode's
	noCgroups bool    // tests: as on a host where none is writable
}

// Report is the outcome of probing.
type Report struct {
	Level  Level
	Driver string // the same in words, with what it found
	// Problems says for each better driver, and for what weakens this one, what is
	// missing and how to get it.
	Problems []string
}

// unavailable is the answer where no driver works. It names the problems, because
// the fix is one of theirs.
func (s *Sandbox) unavailable() error {
	fix := "see agentctl doctor"
	if len(s.report.Problems) > 0 {
		fix = "one of: " + strings.Join(s.report.Problems, "; ")
	}
	return fault.New(codes.FailedPrecondition, fault.SandboxUnavailable, "no sandbox works on this host, so no program is run", fix)
}
