//go:build linux

package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

func TestProbe(t *testing.T) {
	r := Probe(t.Context(), Required)
	switch r.Level {
	case LevelFull, LevelBubblewrap, LevelPrivileged:
	case LevelNone:
		if len(r.Problems) < 3 {
			t.Errorf("three drivers failed, and the problems are %q", r.Problems)
		}
	default:
		t.Errorf("required gave %+v", r)
	}
	if r.Driver == "" {
		t.Errorf("got %+v", r)
	}
	if r := Probe(t.Context(), ""); r.Level == LevelReduced || r.Level == LevelOff {
		t.Errorf("the default gave %+v", r)
	}
	if r := Probe(t.Context(), Off); r.Level != LevelOff || len(r.Problems) == 0 {
		t.Errorf("off gave %+v", r)
	}
	if r := Probe(t.Context(), "none"); r.Level != LevelNone || len(r.Problems) != 1 {
		t.Errorf("a wrong mode gave %+v", r)
	}
}

func TestLevels(t *testing.T) {
	for mode, want := range map[Mode]string{
		"": "full bubblewrap privileged", Required: "full bubblewrap privileged",
		Reduced: "full bubblewrap privileged reduced", Off: "off",
	} {
		levels, err := mode.levels()
		var got []string
		for _, l := range levels {
			got = append(got, string(l))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q tries %q, %v", mode, got, err)
		}
	}
	if _, err := New(t.Context(), Options{Mode: "maybe"}); !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}

// S4: driver missing: refused. Nothing runs on the host, and the answer says why.
func TestNoneRefuses(t *testing.T) {
	dir := workdir(t, LevelFull)
	s, err := New(t.Context(), Options{ScratchDir: outside(t), levels: []Level{}})
	if err != nil {
		t.Fatal(err)
	}
	s.report.Problems = []string{"full: set user.max_user_namespaces=10000 with sysctl"}
	if s.Report().Level != LevelNone {
		t.Fatalf("got %+v", s.Report())
	}
	_, err = s.Run(t.Context(), Command{Shell: "echo ran >ran", Workdir: dir})
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != codes.FailedPrecondition || f.Reason != fault.SandboxUnavailable || !strings.Contains(f.Fix, "user.max_user_namespaces") {
		t.Errorf("got %#v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran all the same")
	}
}

// A driver that worked when probed and fails later is refused, too.
func TestLaterFailureRefuses(t *testing.T) {
	s, dir := only(t, LevelFull), workdir(t, LevelFull)
	s.launcher.kill()
	s.launcher.program = filepath.Join(dir, "gone")
	_, err := s.Run(t.Context(), Command{Shell: "echo ran >ran", Workdir: dir})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Reason != fault.SandboxUnavailable || f.Fix == "" {
		t.Errorf("got %#v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran all the same")
	}
}

// Real failures of each driver, and what is said about them.
func TestProblems(t *testing.T) {
	t.Run("bubblewrap", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		s, err := New(t.Context(), Options{ScratchDir: outside(t), levels: []Level{LevelBubblewrap}})
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s.Report(), "bubblewrap: bwrap is not in PATH; install the package bubblewrap")
	})
	t.Run("broken bubblewrap", func(t *testing.T) {
		dir := outside(t)
		if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\necho setting up uid map: Permission denied >&2; exit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":/usr/bin:/bin")
		s, err := New(t.Context(), Options{ScratchDir: outside(t), levels: []Level{LevelBubblewrap}})
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s.Report(), "setting up uid map: Permission denied")
	})
	t.Run("scratch", func(t *testing.T) {
		s, err := New(t.Context(), Options{ScratchDir: filepath.Join(t.TempDir(), "missing"), levels: []Level{LevelFull}})
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s.Report(), "full: make probe directory")
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s, err := New(ctx, Options{ScratchDir: outside(t), levels: []Level{LevelFull}})
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, s.Report(), "full: ")
	})
	// Inside the sandbox no driver works: seccomp refuses what they need. A runner
	// that is itself contained sees exactly this.
	t.Run("contained", func(t *testing.T) {
		s, dir := only(t, LevelFull), workdir(t, LevelFull)
		binary, err := self()
		if err != nil {
			t.Fatal(err)
		}
		r := mustRun(t, s, Command{Argv: []string{binary, attemptArg, "probe"}, Workdir: dir, Network: true})
		got := string(r.Stdout)
		for _, want := range []string{
			"none", "full: no user namespace (operation not permitted); the container's seccomp profile",
			"bubblewrap: ", "privileged: CAP_SYS_ADMIN is missing (clone: operation not permitted); run as root",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q%q", want, got, r.Stderr)
			}
		}
	})
}

func init() {
	counts = append(counts, attempt{name: "probe", run: func() error {
		r := Probe(context.Background(), Required)
		if r.Level == LevelNone {
			return errors.New(string(r.Level) + "\n" + strings.Join(r.Problems, "\n"))
		}
		return nil
	}})
}

func wantProblem(t *testing.T, r Report, want string) {
	t.Helper()
	if r.Level != LevelNone || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], want) {
		t.Errorf("got %+v, want a problem with %q", r, want)
	}
}

func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		level Level
		err   error
		want  string
	}{
		{LevelFull, &setupError{step: "landlock", text: "ABI 0"}, "lsm="},
		{LevelReduced, &setupError{step: "landlock", text: "ABI 3"}, "6.12"},
		{LevelFull, &setupError{step: "seccomp", text: "x", errno: unix.EINVAL}, "CONFIG_SECCOMP_FILTER"},
		{LevelFull, &setupError{step: "clone", text: "x", errno: unix.ENOSPC}, "CLONE_NEWUSER"},
		{LevelFull, &setupError{step: "mount private", text: "x", errno: unix.EPERM}, "the user namespace has no rights"},
		{LevelPrivileged, &setupError{step: "clone", text: "x", errno: unix.EPERM}, "CAP_SYS_ADMIN"},
		{LevelBubblewrap, &setupError{step: "start", text: "x"}, "bwrap does not start"},
		{LevelReduced, errRootWorkdir, "run as an ordinary user"},
	} {
		if got := diagnose(c.level, c.err); !strings.Contains(got, c.want) {
			t.Errorf("diagnose(%s, %v) = %q, want %q in it", c.level, c.err, got, c.want)
		}
	}
	for name, bad := range map[string]string{
		"user.max_user_namespaces": "0", "kernel.unprivileged_userns_clone": "0", "kernel.apparmor_restrict_unprivileged_userns": "1",
	} {
		got := usernsFix(func(n string) string {
			if n == name {
				return bad
			}
			return ""
		})
		if !strings.Contains(got, "set "+name+"=") {
			t.Errorf("usernsFix = %q, want %s in it", got, name)
		}
	}
}

func TestWeak(t *testing.T) {
	s := &Sandbox{}
	if got := s.weak(LevelReduced); !strings.Contains(strings.Join(got, ";"), "chmod") || !strings.Contains(strings.Join(got, ";"), "memory cgroup") {
		t.Errorf("got %q", got)
	}
	s.cgroups.Memory, s.cgroups.PIDs = true, true
	if got := s.weak(LevelFull); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// Main returns at once in a process that has no role.
func TestMainReturns(t *testing.T) {
	Main()
	if out, err := exec.Command("/proc/self/exe", "-test.list", "TestMainReturns").Output(); err != nil || !strings.Contains(string(out), "TestMainReturns") {
		t.Errorf("got %q, %v", out, err)
	}
}
