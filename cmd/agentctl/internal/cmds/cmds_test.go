package cmds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// S0-105: plain words find the program, and only what is installed is named.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 || len(f[2]) < 10 || len(words(f[2])) == 0 {
			t.Fatalf("row %q", line)
		}
		names = append(names, f[0])
		if f[0] == "rg" { // not a program
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f[0]), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("the table is not sorted, or names one twice")
	}
	if err := os.WriteFile(filepath.Join(dir, "rg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := installed("/no/such" + string(os.PathListSeparator) + dir)
	if len(all) != len(names)-1 || all[0].Path != filepath.Join(dir, all[0].Name) {
		t.Fatalf("%d programs of %d", len(all), len(names))
	}
	for query, want := range map[string]string{
		"large files": "du find", "how do I count the lines of a file?": "wc", "replace text": "sed tr", "json": "jq",
		"unpack a zip archive": "unzip", "compare two files": "cmp comm diff", "free disk space": "df", "tar": "tar",
		"search text in many files": "grep", "rg": "", "teleport": "", "the of": "",
	} {
		var got []string
		for _, p := range find(all, query) {
			got = append(got, p.Name)
		}
		first := strings.Fields(want)
		if len(got) < len(first) || want == "" && len(got) > 0 {
			t.Errorf("%q: %q, want %q first", query, got, first)
			continue
		}
		head := slices.Clone(got[:len(first)])
		slices.Sort(head)
		if !slices.Equal(head, first) {
			t.Errorf("%q: %q, want %q first", query, got, first)
		}
	}
}
