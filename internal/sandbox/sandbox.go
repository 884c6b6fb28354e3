//go:build linux

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox/cgroup"
	"github.com/theclaw/agents/internal/sandbox/jail"
)

// Main is the first statement of main and of TestMain. When this process is one
// of a sandbox's it runs that and does not return; else it looks at
// one argument and returns.
func Main() { jail.Main() }

// Sandbox runs programs. It is safe for concurrent use.
type Sandbox struct {
	opts     Options
	report   Report
	cgroups  cgroup.Set
	bwrap    string
	self     string
	idmap    idmaps
	launcher launcher
	scratch  *scratch // for what is temporary
}

// Probe says which driver a mode would get here. It starts one small program per
// driver tried.
func Probe(ctx context.Context, mode Mode) Report {
	s, err := New(ctx, Options{Mode: mode})
	if err != nil {
		return Report{Level: LevelNone, Driver: driverText(LevelNone), Problems: []string{fault.From(err).What + ": " + fault.From(err).Fix}}
	}
	defer s.Close()
	return s.report
}

// TempDir makes a directory for the workdir of one program, which the caller removes. One that a killed process left
// is removed by a later start.
func (s *Sandbox) TempDir() (string, error) {
	dir, err := s.scratch.Temp("dir-")
	if err == nil && s.report.Level == LevelReduced && os.Geteuid() == 0 {
		err = os.Chown(dir, nobody, nobody) // programs cannot be root there
	}
	return dir, err
}

// New probes and returns a Sandbox. That nothing works is not an error here: it is
// in the Report, and Run refuses. An error is a wrong option.
func New(ctx context.Context, o Options) (*Sandbox, error) {
	levels, err := o.Mode.levels()
	if err != nil {
		return nil, err
	}
	if o.Program == "" && !jail.Called() {
		// This program would start all over in its place, and what it starts again.
		return nil, errors.New("the program does not call sandbox.Main first")
	}
	if o.levels != nil {
		levels = o.levels
	}
	if o.ScratchDir == "" {
		o.ScratchDir = os.TempDir()
	}
	if o.ScratchDir, err = filepath.Abs(o.ScratchDir); err != nil {
		return nil, fmt.Errorf("resolve scratch directory: %w", err)
	}
	s := &Sandbox{opts: o, self: cmp.Or(o.Program, selfPath())}
	s.launcher.program = s.self
	s.bwrap, _ = exec.LookPath("bwrap")
	if !o.noCgroups {
		s.cgroups = cgroup.Find()
	}
	s.scratch = makeScratch(o.ScratchDir, os.Geteuid() == 0 && slices.Contains(levels, LevelReduced))
	s.report = s.probe(ctx, levels)
	return s, nil
}

// Report is what New found.
func (s *Sandbox) Report() Report { return s.report }

// Close gives back what is temporary. Programs that run are not touched.
func (s *Sandbox) Close() {
	s.launcher.stop()
	s.idmap.close()
	_ = s.scratch.Close() // what is left is swept by the next start
}

// selfPath is how this binary is started again. Without /proc the path it was
// found at must do.
func selfPath() string {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link
	}
	if p, err := os.Executable(); err == nil {
		return p
	}
	if p, err := exec.LookPath(os.Args[0]); err == nil {
		return p
	}
	return os.Args[0]
}

func (s *Sandbox) probe(ctx context.Context, levels []Level) Report {
	var problems []string
	for _, l := range levels {
		err := s.try(ctx, l)
		if err == nil {
			return Report{Level: l, Driver: driverText(l), Problems: append(problems, s.weak(l)...)}
		}
		problems = append(problems, fmt.Sprintf("%s: %s", l, diagnose(l, err)))
	}
	return Report{Level: LevelNone, Driver: driverText(LevelNone), Problems: problems}
}

// try really starts a program, which has to write in its workdir.
func (s *Sandbox) try(ctx context.Context, l Level) error {
	dir, err := s.scratch.Temp("probe-")
	if err != nil {
		return fmt.Errorf("make probe directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if l == LevelReduced && os.Geteuid() == 0 {
		// A workdir of root is refused at this level; see identity.
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return fmt.Errorf("make probe directory: %w", err)
		}
	}
	r, err := s.run(ctx, l, Command{Shell: "echo works >probe && cat probe", Workdir: dir, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(r.Stdout)); got != "works" || r.ExitCode != 0 {
		return fmt.Errorf("the probe ended with code %d: %s", r.ExitCode, Text(r.Stderr))
	}
	return nil
}
