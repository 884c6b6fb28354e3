package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makefile stands in for the project's: three proofs that know how they end.
const makefile = `
good: ; @echo "building"; echo "good n=$(N) lost=0 seed=7"
rootless: ; @echo "rootless-disk skipped: it needs root"
bad: ; @echo "bad lost=1"; exit 1
mute: ; @echo "all is well"
`

const page = "# Page\n\nbefore\n" + begin + "\nold table\n" + end + "\nafter\n"

func TestRecord(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"Makefile": makefile, "page.md": page, "bare.md": "no marks\n"} {
		if err := os.WriteFile(filepath.Clean(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string // on stderr
		page string // in page.md afterwards
	}{
		{"no list", nil, 2, "no proof is named", "old table"},
		{"all pass", []string{"-page", "page.md", "good N=3"}, 0, "", "| `make good N=3` | 0 | n=3 lost=0 seed=7 |"},
		{"the table stays when one fails", []string{"-page", "page.md", "bad", "good N=4"}, 1, "1 of 2 proofs failed: bad", "n=3"},
		{"no figures is no proof", []string{"mute"}, 1, "no figures", "n=3"},
		{"two at once", []string{"-page", "page.md", "-jobs", "2", "good N=8", "good N=9", "good N=10"}, 0, "", "| `make good N=8` | 0 | n=8 lost=0 seed=7 |\n| `make good N=9` | 0 | n=9 lost=0 seed=7 |\n| `make good N=10` | 0 |"},
		{"one of two fails", []string{"-page", "page.md", "-jobs", "2", "bad", "good N=4"}, 1, "1 of 2 proofs failed: bad", "n=10"},
		{"no jobs", []string{"-jobs", "0", "good"}, 2, "-jobs is less than 1", "n=10"},
		{"a skip says why", []string{"-page", "page.md", "rootless"}, 0, "", "| `make rootless` | 0 | skipped: it needs root |"},
		{"no such target", []string{"absent"}, 1, "absent", "it needs root"},
		{"no place", []string{"-page", "bare.md", "good N=5"}, 1, "no place", "it needs root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := Main(c.args, &out, &errs); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, &errs)
			}
			if !strings.Contains(errs.String(), c.says) {
				t.Errorf("stderr %q does not say %q", &errs, c.says)
			}
			raw, err := os.ReadFile("page.md")
			if err != nil {
				t.Fatal(err)
			}
			got := string(raw)
			if !strings.Contains(got, c.page) || !strings.HasPrefix(got, "# Page\n\nbefore\n") || !strings.HasSuffix(got, "after\n") {
				t.Errorf("the page is now\n%s", got)
			}
		})
	}
}
