//go:build linux && proof

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/egress/proxy"
	"github.com/theclaw/agents/internal/netguard"
)

// This is the proof behind `make sandbox-escape` (acceptance S4). TestEscape asks
// the attempts how it went. Here nobody is asked: each attempt is a real program,
// and whether it got anywhere is looked for from outside, in the files, processes,
// sockets and streams of the host. Each is made without the sandbox first, where it
// must succeed: a check that cannot fail is found out.

// A breach is one row of the table.
type breach struct {
	name  string
	shell string       // the program, or
	run   func() error // the test binary as one; see runAttempt

	limits  Limits
	timeout time.Duration
	cap     int
	spill   string                      // directory in the workdir for output above the cap
	proxy   bool                        // it has the proxy, which permits one host that is not here; not at level reduced, which refuses it
	before  func(w *home)               // what has to stand
	got     func(w *home, r Result) any // evidence from outside; nil or "": held
	leaks   []Level                     // docs/security.md says so
	absent  func(w *home) string        // why the attempt means nothing on this host
}

var breaches = slices.Concat(fileBreaches, processBreaches, reachBreaches, limitBreaches)

func init() {
	for _, b := range breaches {
		if b.run != nil {
			counts = append(counts, attempt{name: b.name, run: b.run})
		}
	}
}

const (
	kept   = "held"
	leaked = "leaked"
	absent = "n/a"
)

// TestSandboxEscape prints the table and fails on an escape, on an attempt that
// does not work without a sandbox either, and on a leak that nobody has written down.
func TestSandboxEscape(t *testing.T) {
	t.Setenv(envCanary, hostSecret)
	var drivers []Level
	boxes := map[Level]*Sandbox{}
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged, LevelReduced} {
		if len(drivers) > 0 && os.Getenv("DRIVERS") != "all" {
			break // the whole table is the proof's, which is run by itself
		}
		t.Run("driver "+string(l), func(t2 *testing.T) {
			s := only(t2, l)
			s.Close()
			boxes[l] = with(t, l, Options{})
			drivers = append(drivers, l)
		})
	}
	if len(drivers) == 0 {
		t.Fatal("no driver works here, so nothing is shown")
	}
	escaped, leaks, uncontrolled := 0, 0, 0
	table := [][]string{append([]string{"attempt", "without"}, words(drivers)...)}
	for _, b := range breaches {
		start, row := time.Now(), []string{b.name}
		w := newHome(t, LevelOff, nil)
		why := ""
		if b.absent != nil {
			why = b.absent(w)
		}
		switch evidence := w.try(b, nil); {
		case why != "":
			row = append(row, absent)
		case evidence == "":
			uncontrolled++
			row = append(row, "REFUSED")
			t.Errorf("%s: refused without a sandbox, so it shows nothing: %s", b.name, w.said)
		default:
			row = append(row, "works")
		}
		w.end()
		for _, l := range drivers {
			if why != "" {
				row = append(row, absent)
				continue
			}
			w := newHome(t, l, boxes[l])
			evidence, known := w.try(b, boxes[l]), slices.Contains(b.leaks, l)
			switch {
			case evidence == "" && known:
				t.Errorf("%s: held by %s, and a leak is written down; it said %q", b.name, l, w.said)
				row = append(row, kept)
			case evidence == "":
				row = append(row, kept)
			case known:
				leaks++
				row = append(row, leaked)
			default:
				escaped++
				row = append(row, "ESCAPED")
				t.Errorf("%s: escaped from %s: %s; it said %q", b.name, l, evidence, w.said)
			}
			w.end()
		}
		if testing.Verbose() {
			fmt.Printf("%6.2fs  %s\n", time.Since(start).Seconds(), b.name)
		}
		table = append(table, row)
	}
	printTable(table)
	fmt.Printf("sandbox-escape attempts=%d drivers=%d leaked=%d uncontrolled=%d escaped=%d\n", len(breaches), len(drivers), leaks, uncontrolled, escaped)
	if len(breaches) < 60 {
		t.Errorf("%d attempts, want 60", len(breaches))
	}
}

func words(levels []Level) (out []string) {
	for _, l := range levels {
		out = append(out, string(l))
	}
	return out
}

func printTable(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len(c))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		for i, c := range r {
			fmt.Fprintf(&line, "%-*s  ", width[i], c)
		}
		fmt.Println(strings.TrimRight(line.String(), " "))
	}
}

// try makes the attempt in s, or without any sandbox, and answers the evidence.
func (w *home) try(b breach, s *Sandbox) string {
	w.t.Helper()
	if b.before != nil {
		b.before(w)
	}
	c := Command{
		Shell: b.shell, Workdir: w.work, Env: w.env, Timeout: b.timeout, OutputCap: b.cap, Limits: b.limits,
	}
	if b.spill != "" {
		c.SpillDir = w.work + "/" + b.spill
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if b.run != nil {
		binary, err := self()
		if err != nil {
			w.t.Fatal(err)
		}
		c.Argv = []string{binary, attemptArg, b.name}
	}
	if b.proxy && s != nil && s.report.Level != LevelReduced {
		permitted, err := egress.Parse([]string{"git.example.org"})
		if err != nil {
			w.t.Fatal(err)
		}
		c.Serve = proxy.New(permitted, "sandbox.network", netguard.Guard{Allow: netguard.Everywhere}, nil).Serve
	}
	var r Result
	if s == nil {
		r = bare(w.t, c)
	} else {
		var err error
		if r, err = s.Run(w.t.Context(), c); err != nil {
			w.t.Fatalf("%s: %v", b.name, err)
		}
		if r.ExitCode == 3 && b.run != nil {
			w.t.Errorf("%s: the attempt did not run", b.name)
		}
	}
	w.said = strings.TrimSpace(Text(r.Stdout[:min(len(r.Stdout), 300)]) + Text(r.Stderr[:min(len(r.Stderr), 300)]))
	switch e := b.got(w, r).(type) {
	case nil:
		return ""
	case bool:
		if e {
			return "it is so"
		}
		return ""
	case string:
		return e
	default:
		return fmt.Sprint(e)
	}
}

// bare runs c as any program runs: with our rights, environment and descriptors.
// Only the leader is killed at the timeout, as exec does it.
func bare(t *testing.T, c Command) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	argv := c.Argv
	if c.Shell != "" {
		argv = []string{"bash", "-c", c.Shell}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = c.Workdir, os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Files and no pipes: nobody waits for those who hold them open.
	var streams [2]*os.File
	for i := range streams {
		f, err := os.CreateTemp(t.TempDir(), "stream")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		streams[i] = f
	}
	cmd.Stdout, cmd.Stderr = streams[0], streams[1]
	_ = cmd.Run() // how it ended says nothing here
	var r Result
	for i, to := range []*[]byte{&r.Stdout, &r.Stderr} {
		b, err := os.ReadFile(streams[i].Name())
		if err != nil {
			t.Fatal(err)
		}
		*to = b
	}
	return r
}

// What the level reduced is known to let through stands in docs/security.md, and
// nothing else does.
func TestKnownLeaks(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(page), "<!-- what reduced lets through -->")
	list, _, end := strings.Cut(list, "<!-- end -->")
	if !ok || !end {
		t.Fatal("docs/security.md has no list of what reduced lets through")
	}
	var told []string
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`").FindAllStringSubmatch(list, -1) {
		told = append(told, m[1])
	}
	var known []string
	for _, b := range breaches {
		for _, l := range b.leaks {
			if l != LevelReduced {
				t.Errorf("%s: %s must leak nothing", b.name, l)
			}
			known = append(known, b.name)
		}
	}
	slices.Sort(told)
	slices.Sort(known)
	if !slices.Equal(told, known) {
		t.Errorf("docs/security.md lists %q, the table has %q", told, known)
	}
}

// contains is the evidence of most attempts: the program could say what it must
// not know.
func contains(secret func(w *home) string) func(*home, Result) any {
	return func(w *home, r Result) any {
		if bytes.Contains(append(append([]byte{}, r.Stdout...), r.Stderr...), []byte(secret(w))) {
			return "it said the secret"
		}
		return nil
	}
}

func theSecret(w *home) string { return w.secret }
