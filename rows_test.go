package agents_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The acceptance rows are in testdata/rows.txt: an id, a tab and a short text in each line.
// docs/spec/rows.md shows them with the tests that name them. `make rows` writes it.
var writeRows = flag.Bool("write-rows", false, "write docs/spec/rows.md instead of comparing it")

var anyRowID = regexp.MustCompile(`\b(S[0-4])-(\d{2,3})(?:(?: to |\.\.)(?:S[0-4]-)?(\d{2,3}))?\b`)

// anyRowIDs are the ids of all families in a text, with ranges expanded.
func anyRowIDs(text string) (ids []string) {
	for _, m := range anyRowID.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[3] != "" {
			last, _ = strconv.Atoi(m[3])
		}
		for n := first; n <= last; n++ {
			ids = append(ids, fmt.Sprintf("%s-%02d", m[1], n))
		}
	}
	return ids
}

// TestSpecRows compares docs/spec/rows.md with the rows and with the tests that name them.
func TestSpecRows(t *testing.T) {
	generated(t, "docs/spec/rows.md", "make rows", "the tests", specRows(t), *writeRows)
}

// specRows is a summary, and a table for each family of rows.
func specRows(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{}
	for name, ids := range shows(t, anyRowIDs) {
		_, fn, _ := strings.Cut(name, ".")
		if !strings.HasPrefix(fn, "Test") && !strings.HasPrefix(fn, "Fuzz") {
			continue // a function that tests call
		}
		for _, id := range ids {
			tests[id] = append(tests[id], "`"+name+"`")
		}
	}
	tables, total, shown := map[string]string{}, map[string]int{}, map[string]int{}
	known := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		id, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || known[id] {
			t.Errorf("testdata/rows.txt: %q is no row, or stands twice", line)
		}
		known[id] = true
		family, _, _ := strings.Cut(id, "-")
		total[family]++
		by := "none"
		if names := tests[id]; len(names) > 0 {
			shown[family]++
			slices.Sort(names)
			by = strings.Join(slices.Compact(names), ", ")
		}
		tables[family] += fmt.Sprintf("| %s | %s | %s |\n", id, text, by)
	}
	for _, id := range slices.Sorted(maps.Keys(tests)) {
		if !known[id] {
			t.Errorf("%v name the row %s, which is not in testdata/rows.txt", tests[id], id)
		}
	}
	var b strings.Builder
	b.WriteString("\n| family | rows | named by a test | named by none |\n|---|---|---|---|\n")
	rows, with := 0, 0
	for _, f := range slices.Sorted(maps.Keys(tables)) {
		rows, with = rows+total[f], with+shown[f]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", f, total[f], shown[f], total[f]-shown[f])
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d |\n", rows, with, rows-with)
	for _, f := range slices.Sorted(maps.Keys(tables)) {
		fmt.Fprintf(&b, "\n## %s\n\n| row | what | tests |\n|---|---|---|\n%s", f, tables[f])
	}
	return b.String() + "\n"
}
