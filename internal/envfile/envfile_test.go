package envfile_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/envfile"
	"github.com/theclaw/agents/internal/fault"
)

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// S2-06: what a file may hold.
func TestRead(t *testing.T) {
	got, err := envfile.Read(write(t, "\ufeff# keys\r\n\nA=1\r\nexport B = two words # note\nC=\"a # b $A\"\nD='it \"is\"' # note\nE=\nF=# nothing\nG=x#y\n_h1=\t$(date)\t\n", 0o600))
	want := envfile.Vars{"A": "1", "B": "two words", "C": "a # b $A", "D": `it "is"`, "E": "", "F": "", "G": "x#y", "_h1": "$(date)"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	if got, err := envfile.Read(filepath.Join(t.TempDir(), ".env")); err != nil || got != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
	if got, err := envfile.Read(filepath.Join(write(t, "", 0o600), ".env")); err != nil || got != nil {
		t.Errorf("below a file: %q, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nwords": "line 2: this is no assignment", "1A=x": "line 1", "A-B=x": "line 1", "A=1\nA=2": "line 2: A is set a second time",
		"A=\"x": "line 1: the value of A", "A='x' y": "line 1: the value of A", "A=\x00": "not text", "A=\xff": "not text",
		"\nPATH=/x": "line 2: PATH", "LD_PRELOAD=x": "LD_PRELOAD", "THECLAW_HOME=x": "THECLAW_HOME", "export GODEBUG=x": "GODEBUG", "THECLAW_PROFILE=x": "THECLAW_PROFILE",
		"A=" + strings.Repeat("x", 64<<10): "larger than 64 KiB",
	} {
		_, err := envfile.Read(write(t, text, 0o600))
		if f := fault.From(err); f.Reason != fault.ConfigInvalid || !strings.Contains(f.What, want) || f.Fix == "" {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	const secret = "sk-1234"
	for _, mode := range []os.FileMode{0o640, 0o604, 0o622} {
		path := write(t, "A="+secret+" \"", 0o600)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := envfile.Read(path); !strings.Contains(fault.From(err).What, "others can read it") || strings.Contains(err.Error(), secret) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if _, err := envfile.Read(write(t, "A='"+secret, 0o600)); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v: want an error without the value", err)
	}
	pipe := filepath.Join(t.TempDir(), ".env")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := envfile.Read(pipe); !strings.Contains(fault.From(err).What, "it is not a file") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := envfile.Read(t.TempDir()); fault.From(err).Reason != fault.ConfigInvalid {
		t.Errorf("a directory: %v", err)
	}
}

// S2-06: the environment of the process wins.
func TestEnvironmentWins(t *testing.T) {
	v := envfile.Vars{"A": "file", "B": "file"}
	getenv := v.Getenv(func(name string) string { return map[string]string{"A": "real"}[name] })
	if getenv("A") != "real" || getenv("B") != "file" || getenv("C") != "" {
		t.Errorf("A=%s B=%s C=%s", getenv("A"), getenv("B"), getenv("C"))
	}
	got := v.Environ([]string{"A=real", "D=x"})
	if slices.Sort(got); !slices.Equal(got, []string{"A=real", "B=file", "D=x"}) {
		t.Errorf("environment %q", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("A=1\nexport B='x' # y\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := envfile.Read(write(t, text, 0o600))
		for name := range v {
			if strings.ContainsAny(name, "= \x00\n") || strings.ContainsAny(v[name], "\n\x00") {
				t.Errorf("%q: variable %q=%q", text, name, v[name])
			}
		}
		if err != nil && fault.From(err).Reason != fault.ConfigInvalid {
			t.Error(err)
		}
	})
}
