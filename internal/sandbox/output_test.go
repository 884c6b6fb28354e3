//go:build linux

package sandbox

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// S0-104: the output is capped and the rest is in a file the next run can read.
func TestOutputCap(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		spill := filepath.Join(dir, "a", "spill")
		r := mustRun(t, s, Command{Shell: "seq 1 20000", Workdir: dir, OutputCap: 1000, SpillDir: spill})
		var want bytes.Buffer
		for i := range 20000 {
			want.WriteString(itoa(i+1) + "\n")
		}
		if !r.Truncated || len(r.Stdout)+len(r.Stderr) != 1000 || filepath.Dir(r.Spill) != spill {
			t.Fatalf("got %d bytes, truncated %t, %q", len(r.Stdout), r.Truncated, r.Spill)
		}
		rest, err := os.ReadFile(r.Spill)
		if err != nil || string(r.Stdout)+string(rest) != want.String() {
			t.Errorf("the parts do not make the whole: %d + %d, want %d bytes, %v", len(r.Stdout), len(rest), want.Len(), err)
		}
		if st, err := os.Stat(r.Spill); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the spill file has mode %v, %v", st.Mode(), err)
		}
		again := mustRun(t, s, Command{Argv: []string{"tail", "-n", "1", r.Spill}, Workdir: dir})
		if string(again.Stdout) != "20000\n" {
			t.Errorf("the next run reads %q, %q", again.Stdout, again.Stderr)
		}
	})
}

func TestOutputCapShared(t *testing.T) {
	s, dir := only(t, LevelOff), workdir(t, LevelOff)
	r := mustRun(t, s, Command{Shell: "seq 1000; seq 1000 >&2", Workdir: dir, OutputCap: 4000})
	if len(r.Stdout)+len(r.Stderr) != 4000 || !r.Truncated || r.Spill != "" {
		t.Errorf("got %d + %d bytes, truncated %t, %q", len(r.Stdout), len(r.Stderr), r.Truncated, r.Spill)
	}
	r = mustRun(t, s, Command{Shell: "head -c 300000 /dev/zero", Workdir: dir})
	if len(r.Stdout) != DefaultOutputCap || !r.Truncated {
		t.Errorf("got %d bytes, want the default %d", len(r.Stdout), DefaultOutputCap)
	}
	r = mustRun(t, s, Command{Shell: "printf 12345", Workdir: dir, OutputCap: 5})
	if r.Truncated || string(r.Stdout) != "12345" {
		t.Errorf("exactly the cap: got %q, truncated %t", r.Stdout, r.Truncated)
	}
}

// A program cannot make us write elsewhere by links in the way of the spill.
func TestSpillLink(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir, other := only(t, l), workdir(t, l), outside(t)
		if err := os.Chmod(other, 0o777); err != nil {
			t.Fatal(err)
		}
		r := mustRun(t, s, Command{Shell: "ln -s " + other + " spill; seq 10000", Workdir: dir, OutputCap: 10, SpillDir: filepath.Join(dir, "spill")})
		left, err := os.ReadDir(other)
		if err != nil || len(left) > 0 || r.Spill != "" {
			t.Errorf("written outside: %v, %q, %v", left, r.Spill, err)
		}
		if !r.Truncated || len(r.Stdout) != 10 {
			t.Errorf("got %d bytes, truncated %t", len(r.Stdout), r.Truncated)
		}
	})
}

// What is followed comes whole, also above the cap, and each stream by itself.
func TestOutputFollowed(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		var stdout, stderr bytes.Buffer
		r := mustRun(t, s, Command{
			Shell: "seq 1 20000; echo end >&2", Workdir: dir, OutputCap: 1000,
			OnStdout: func(b []byte) { stdout.Write(b) }, OnStderr: func(b []byte) { stderr.Write(b) },
		})
		if n := bytes.Count(stdout.Bytes(), []byte("\n")); n != 20000 || stderr.String() != "end\n" || !r.Truncated {
			t.Errorf("followed %d lines and %q, truncated %t", n, stderr.String(), r.Truncated)
		}
	})
}

// A log has the complete output from the first byte on, and an input that stays open ends with the
// program; it starts before it ends.
func TestLog(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		in, _ := io.Pipe() // nothing is ever written
		started := 0
		c := Command{Shell: "seq 1 20000; echo err >&2", Workdir: dir, OutputCap: 1000, SpillDir: filepath.Join(dir, ".output"), Log: "p-1.log", Stdin: in, OnStart: func() { started++ }}
		r := mustRun(t, s, c)
		if want := filepath.Join(dir, ".output", "p-1.log"); r.Spill != want || !r.Truncated || started != 1 {
			t.Fatalf("the log is %q, truncated %t, started %d times", r.Spill, r.Truncated, started)
		}
		b, err := os.ReadFile(r.Spill)
		if lines := bytes.Count(b, []byte("\n")); err != nil || lines != 20001 || !bytes.HasPrefix(b, []byte("1\n")) {
			t.Errorf("%d lines, %v", lines, err)
		}
		if _, err := in.Read(make([]byte, 1)); err == nil {
			t.Error("the input is open still")
		}
		if _, err := s.Run(t.Context(), c); err == nil {
			t.Error("a log was replaced")
		}
		c.Shell, c.Log, c.OutputCap = "echo few", "p-2.log", 0
		if r := mustRun(t, s, c); r.Truncated || r.Spill != filepath.Join(dir, ".output", "p-2.log") {
			t.Errorf("a short output is in %q", r.Spill)
		}
	})
}
