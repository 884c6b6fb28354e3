package reference_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
)

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(" of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KEY": "of the environment"}
	for _, c := range []struct{ ref, want, problem string }{
		{"env:KEY", "of the environment", ""},
		{"file:" + file, "of a file", ""},
		{"env:NONE", "", "NONE is not set"},
		{"file:" + file + ".gone", "", "no such file"},
		{"sk-1", "", "env:NAME or file:PATH"},
	} {
		got, err := reference.Read(func(n string) string { return env[n] }, c.ref)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %q %v, want %q %q", c.ref, got, err, c.want, c.problem)
		}
	}
	got, err := reference.Databases(func(n string) string { return env[n] }, []string{"postgres://db/claw", "env:KEY"})
	if want := []string{"postgres://db/claw", "of the environment"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if _, err := reference.Databases(os.Getenv, []string{"env:THECLAW_NO_SUCH_VARIABLE"}); !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("%v, want CONFIG_INVALID", err)
	}
}
