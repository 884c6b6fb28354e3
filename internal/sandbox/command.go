package sandbox

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox/output"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// The defaults and bounds of a Command.
const (
	DefaultTimeout   = 600 * time.Second
	MaxTimeout       = 3600 * time.Second // of a program that a caller waits for
	MaxAge           = 24 * time.Hour     // of any program
	DefaultOutputCap = 256 << 10          // bytes
	SpillCap         = output.SpillCap    // bytes of one spill file; the rest is dropped
)

// Limits are resource limits; a zero is its default.
type Limits struct {
	MemoryBytes int64 // default 4 GiB; of all processes where there is a memory cgroup, else of each
	PIDs        int64 // default 256 processes and threads
	FileBytes   int64 // default 256 MiB for one file, and for the private /tmp
	CPUSeconds  int64 // default 600 seconds for each process
	OpenFiles   int64 // default 512 descriptors for each process
	// AddressBytes is the address space of each process where there is a memory cgroup, which counts what is used of it:
	// at least 16 times MemoryBytes, which is the default. Where there is none, it is MemoryBytes.
	AddressBytes int64
}

// Trusted is the command for a program that is run for us and not for an agent's model,
// with the mode off: without limits, with this environment and no other, in our own
// current directory. What it prints is only passed on.
func Trusted(argv, env []string, stdin string, within time.Duration, stdout, stderr func([]byte)) Command {
	c := Command{
		Argv: argv, Env: map[string]string{}, OnlyEnv: true, Stdin: strings.NewReader(stdin), Network: true, Timeout: min(within, MaxTimeout),
		OutputCap: 1, OnStdout: stdout, OnStderr: stderr, Limits: Unlimited,
	}
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			c.Env[name] = value
		}
	}
	return c
}

// Unlimited are the limits of such a program.
var Unlimited = Limits{MemoryBytes: 1 << 46, PIDs: 1 << 20, FileBytes: 1 << 50, CPUSeconds: 1 << 40, OpenFiles: 1 << 16}

func (l Limits) jail() wire.Limits {
	pick := func(v, d int64) int64 {
		if v <= 0 {
			return d
		}
		return v
	}
	return wire.Limits{
		MemoryBytes: pick(l.MemoryBytes, 4<<30), PIDs: pick(l.PIDs, 256), FileBytes: pick(l.FileBytes, 256<<20),
		CPUSeconds: pick(l.CPUSeconds, 600), OpenFiles: pick(l.OpenFiles, 512), AddressBytes: l.AddressBytes,
	}
}

// ProxyAddress is where a program reaches what Command.Serve serves.
const ProxyAddress = "127.0.0.1:3128"

// Path is the PATH of every program.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Command is one program to run. Give Shell or Argv.
type Command struct {
	Shell string   // run by bash -c, by sh -c where there is no bash
	Argv  []string // run directly; found in the sandbox's PATH
	// Workdir is the current directory, the only place that stays and can be
	// written, at the same path. It must exist and be absolute. With the mode off it may
	// be empty: the program runs in our own current directory.
	Workdir string
	// Workspace is a directory that the program sees at the same path and cannot change; its
	// files belong to the owner of Workdir. Empty: there is none. With the mode off it is ignored.
	Workspace string
	// WorkspaceAt is another path at which the program sees Workspace; empty: there is none. At the level reduced,
	// and with the mode off, it is ignored: see [Level.OwnRoot].
	WorkspaceAt string
	Env         map[string]string // added to the eight variables every program gets
	// OnlyEnv leaves those eight out, for a program that is not of a model.
	OnlyEnv bool
	// Stdin is what the program reads; nil: nothing. One that is an io.Closer is closed at
	// the end of the program, which ends a Read of it that waits.
	Stdin   io.Reader
	Network bool // the host's network; else only a loopback of its own
	// Serve is given a listener on ProxyAddress in the sandbox: only the program connects to it, and we
	// serve it from the host. It ends when the program has ended and the listener is closed; Run waits
	// for that. It needs a network of the program's own: SANDBOX_UNAVAILABLE at level reduced, and with Network or
	// the mode off it is not called. Nil: there is no listener.
	Serve func(net.Listener)
	// ReadOnly are more files and directories of the host to show read-only.
	ReadOnly []string
	Timeout  time.Duration // default DefaultTimeout, at most MaxAge
	// OutputCap is the most bytes of stdout and stderr together that Result holds.
	// Default DefaultOutputCap.
	OutputCap int
	// SpillDir is where output above the cap goes, in a new file of mode 0600. In
	// the workdir or the workspace, the program's next run can read it. Empty: it is dropped.
	SpillDir string
	// Log is the name of a new file in SpillDir for the complete output, from the first byte
	// on, in place of a spill file. It is then Result.Spill, truncated or not.
	Log string
	// OnStart is called when the program was given to the launcher: from then on it may run.
	OnStart func()
	// OnStdout and OnStderr are given the complete output as it comes, in addition to what
	// Result holds of it. Each is called by one goroutine, and must not wait.
	OnStdout, OnStderr func([]byte)
	Limits             Limits
}

// Locate finds the program of Argv as this process finds it, and shows it in the sandbox: the one file, where it is not in
// a directory that every program sees. One that is not there stays as it is, which Run reports.
func (c *Command) Locate() {
	path, err := exec.LookPath(c.Argv[0])
	if err != nil || !filepath.IsAbs(path) {
		return
	}
	c.Argv[0] = path
	if slices.Contains(strings.Split(Path, ":"), filepath.Dir(path)) {
		return
	}
	for _, dir := range append([]string{c.Workdir, c.Workspace}, c.ReadOnly...) {
		if dir != "" && strings.HasPrefix(path+"/", strings.TrimSuffix(dir, "/")+"/") {
			return
		}
	}
	c.ReadOnly = append(c.ReadOnly, path)
}

// Result is how a program ended.
type Result struct {
	Stdout, Stderr []byte // raw; see Text
	ExitCode       int    // 128 + signal when a signal ended it, as shells say
	Signal         string // such as SIGKILL, or empty
	TimedOut       bool   // Command.Timeout or the context's deadline ended it
	Canceled       bool   // the context was cancelled
	Truncated      bool   // output was above the cap
	Spill          string // path of the rest, or empty
	Duration       time.Duration
}

// Text makes output fit for a record, a terminal and a model: valid UTF-8 without
// terminal sequences and without control characters except newline and tab.
func Text(b []byte) string { return output.Text(b) }

func invalid(what, fix string) error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, what, fix)
}

// Checked fills defaults in and refuses what no sandbox can run.
func (c Command) Checked() (Command, error) {
	if (c.Shell == "") == (len(c.Argv) == 0) {
		return c, invalid("a command needs either a shell line or arguments", "give one of them")
	}
	if strings.ContainsRune(c.Shell, 0) || slices.ContainsFunc(c.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return c, invalid("the command contains a NUL byte", "remove it")
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return c, invalid(fmt.Sprintf("environment variable %q is not valid", k), "use a name without = and a value without NUL")
		}
	}
	if c.Timeout < 0 || c.Timeout > MaxAge {
		return c, invalid("the timeout is out of range", fmt.Sprintf("use at most %s", MaxAge))
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.OutputCap <= 0 {
		c.OutputCap = DefaultOutputCap
	}
	return c, nil
}

// check fills defaults in and refuses what cannot be run safely.
func (s *Sandbox) check(c Command) (Command, error) {
	c, err := c.Checked()
	if err != nil {
		return c, err
	}
	if c.Workdir == "" && s.opts.Mode == Off {
		dir, err := os.Getwd()
		if err != nil {
			return c, fmt.Errorf("find current directory: %w", err)
		}
		c.Workdir = dir
		return c, nil
	}
	for _, p := range c.ReadOnly {
		if err := s.checkShown("path", p); err != nil {
			return c, err
		}
	}
	if c.Workspace != "" && s.opts.Mode != Off {
		if err := s.checkWorkdir(c.Workspace); err != nil {
			return c, err
		}
		if within(c.Workspace, c.Workdir) || within(c.Workdir, c.Workspace) {
			return c, invalid(fmt.Sprintf("workspace %q and workdir %q are in one another", c.Workspace, c.Workdir), "use separate directories")
		}
	}
	return c, s.checkWorkdir(c.Workdir)
}

// Through lets a program use a proxy: serve is [Command.Serve] for it, and the variables that programs read
// name it.
func (c *Command) Through(serve func(net.Listener)) {
	c.Serve = serve
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		c.Env[name] = "http://" + ProxyAddress
	}
	c.Env["NO_PROXY"] = "localhost,127.0.0.1"
}

// ours are the directories the private root has itself; a workdir there would
// cover them, or show the host's.
var ours = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/run", "/boot"}

func (s *Sandbox) checkWorkdir(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return invalid(fmt.Sprintf("workdir %q is not an absolute, clean path", dir), "give the full path")
	}
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return invalid(fmt.Sprintf("workdir %q is not a directory", dir), "create it")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return invalid(fmt.Sprintf("workdir %q cannot be resolved", dir), "check the path")
	}
	for _, p := range []string{dir, real} {
		if p == "/" || p == "/tmp" || slices.ContainsFunc(ours, func(o string) bool { return within(p, o) }) {
			return invalid(fmt.Sprintf("workdir %q is a system directory", dir), "use a directory of its own")
		}
	}
	return s.checkShown("workdir", dir)
}

// checkShown refuses a path that would show programs our own sockets or secrets; what says what it is.
func (s *Sandbox) checkShown(what, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) {
		return invalid(fmt.Sprintf("%s %q is not there, or not absolute", what, path), "give the full path of a file or directory")
	}
	for _, f := range s.opts.Forbidden {
		if r, err := filepath.EvalSymlinks(f); err == nil {
			f = r
		}
		if within(f, real) || within(real, f) {
			return invalid(fmt.Sprintf("%s %q would show programs our own sockets or secrets", what, path), "use a directory that does not contain them")
		}
	}
	return nil
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// environment is the allow-list, and what the caller adds to it.
func environment(c Command, temp string) []string {
	env := map[string]string{
		"PATH": Path,
		"HOME": c.Workdir, "PWD": c.Workdir, "TMPDIR": temp, "LANG": "C.UTF-8", "TERM": "dumb",
		"USER": "agent", "SHELL": "/bin/sh",
	}
	if c.OnlyEnv {
		clear(env)
	}
	maps.Copy(env, c.Env)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

func owner(dir string) (uid, gid int, err error) {
	st, err := os.Stat(dir)
	if err != nil {
		return 0, 0, fmt.Errorf("stat workdir: %w", err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return int(sys.Uid), int(sys.Gid), nil
}
