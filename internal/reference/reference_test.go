package reference_test

import (
	"os"
	"path/filepath"
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
	blank, large := file+".blank", file+".large"
	for name, content := range map[string]string{blank: " \n", large: strings.Repeat("x", 64<<10+1)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"KEY": "of the environment"}
	for _, c := range []struct{ ref, want, problem string }{
		{"env:KEY", "of the environment", ""},
		{"file:" + file, "of a file", ""},
		{"file:key", "of a file", ""},
		{"file:../key", "", "no such file"},
		{"env:NONE", "", "NONE is not set"},
		{"file:" + file + ".gone", "", "no such file"},
		{"sk-1", "", "env:NAME or file:PATH"},
		{"file:" + blank, "", "is empty"},
		{"file:" + filepath.Dir(file), "", "not a regular file"},
		{"file:" + large, "", "larger than 64 KiB"},
	} {
		got, err := reference.Read(filepath.Dir(file), func(n string) string { return env[n] }, c.ref)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %q %v, want %q %q", c.ref, got, err, c.want, c.problem)
		}
	}
	for _, c := range []struct {
		given  []string
		want   string
		failed bool
	}{
		{nil, "", false},
		{[]string{"postgres://db/claw"}, "postgres://db/claw", false},
		{[]string{"env:KEY"}, "of the environment", false},
		{[]string{"env:NONE"}, "", true},
		{[]string{"file:key"}, "of a file", false},
		{[]string{"postgres://db/one", "postgres://db/two"}, "", true},
	} {
		got, err := reference.Database(filepath.Dir(file), func(n string) string { return env[n] }, c.given)
		if got != c.want || c.failed != fault.Is(err, fault.ConfigInvalid) || !c.failed && err != nil {
			t.Errorf("%q: %q %v, want %q", c.given, got, err, c.want)
		}
	}
}
