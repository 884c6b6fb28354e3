package standin

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Clean()
	os.Exit(code)
}

// recording plays recorded command lines again, in their order.
type recording struct {
	dir   string            // of the recorded files
	paths *strings.Replacer // of the recording machine, to here
	env   []string
	stdin map[string]string // where it was not recorded
	setup map[string]func() // what happened before, unrecorded
	skip  []string          // cases of what is not modelled
}

var (
	stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	pid   = regexp.MustCompile(`(PID: |"pid":)\d+`)
)

// same makes two outputs comparable: times and process ids differ.
func same(s string) string {
	return pid.ReplaceAllString(stamp.ReplaceAllString(s, "TIME"), "${1}N")
}

// class is what a caller may rely on of a diagnostic: who complains.
func class(stderr string) string {
	for _, c := range []string{"Error: ", "error: ", "Invalid command: ", "Data: ", "Daemon is not running"} {
		if strings.HasPrefix(stderr, c) {
			return c
		}
	}
	if strings.Contains(stderr, "\nError: ENOENT") {
		return "Error: " // a crash with its stack
	}
	return stderr
}

func (r recording) play(t *testing.T) {
	t.Helper()
	cases, err := filepath.Glob(filepath.Join(r.dir, "*.cmd"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("nothing recorded in %s: %v", r.dir, err)
	}
	slices.Sort(cases)
	played := 0
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".cmd")
		if slices.ContainsFunc(r.skip, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		played++
		if before := r.setup[name]; before != nil {
			before()
		}
		read := func(suffix string) string {
			b, _ := os.ReadFile(filepath.Join(r.dir, name+suffix)) // absent: empty
			return r.paths.Replace(string(b))
		}
		c := exec.Command("bash", "-c", read(".cmd"))
		c.Env = r.env
		in := read(".stdin")
		if s, ok := r.stdin[name]; ok {
			in = s
		}
		c.Stdin = strings.NewReader(in)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		_ = c.Run()
		code := strings.TrimSpace(read(".exit"))
		if got := c.ProcessState.String(); got != "exit status "+code {
			t.Errorf("%s: %s, recorded %s; %s", name, got, code, &errs)
		}
		if got, want := same(out.String()), same(read(".stdout")); got != want {
			t.Errorf("%s: stdout\n%s\nrecorded\n%s", name, got, want)
		}
		if got, want := class(errs.String()), class(read(".stderr")); got != want {
			t.Errorf("%s: stderr %q, recorded %q", name, got, want)
		}
	}
	t.Logf("%d recorded command lines", played)
}

// env is a daemon's: a PATH with the programs, a HOME, and nothing of ours.
func env(t *testing.T, home string) []string {
	return []string{"PATH=" + Dir(t) + ":/usr/bin:/bin", "HOME=" + home}
}

func run(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(filepath.Join(Dir(t), args[0]), args[1:]...)
	c.Env = env
	out, err := c.Output()
	return string(out), err
}

func must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	out, err := run(t, env, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func exit(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return 0
}
