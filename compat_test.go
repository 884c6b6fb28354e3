package agents_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)(?:/(\\w+))?`")

// rowIDs are the ids of family S0 in a text, with ranges expanded.
func rowIDs(text string) []string {
	return slices.DeleteFunc(anyRowIDs(text), func(id string) bool { return !strings.HasPrefix(id, "S0-") })
}

// A tableRow is one row of docs/compat.md that is about acceptance rows.
type tableRow struct {
	ids   []string
	tests [][]string // package, name, script
	open  bool       // below a heading that says so
}

func compatRows(t *testing.T) (rows []tableRow) {
	t.Helper()
	raw, err := os.ReadFile("docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	open := false
	for line := range strings.Lines(string(raw)) {
		if m := headMark.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			open = m[1] == "Not yet" || m[1] == "Left out on purpose"
		}
		cells := strings.Split(line, "|")
		if len(cells) < 3 || len(rowIDs(cells[1])) == 0 {
			continue
		}
		r := tableRow{ids: rowIDs(cells[1]), open: open}
		for _, m := range testName.FindAllStringSubmatch(cells[len(cells)-2], -1) {
			r.tests = append(r.tests, m[1:])
		}
		rows = append(rows, r)
	}
	return rows
}

// docs/compat.md names each binding acceptance row once, with tests that exist
// and of which at least one says that it shows the row; a row under "Not yet" or "Left out on purpose" has none.
func TestCompatPage(t *testing.T) {
	left := map[string]bool{}
	for _, r := range acceptanceRows(t) {
		if strings.HasPrefix(r.id, "S0-") && r.priority != "O" {
			left[r.id] = true
		}
	}
	known := rowsNamed(t)
	const contract = "internal/store/sqlite.TestContract" // What an engine is tested with counts for the test that calls it.
	for where, ids := range known {
		if path.Dir(where) == contractSuite {
			known[contract] = append(known[contract], ids...)
		}
	}
	seen := map[string]bool{}
	for _, r := range compatRows(t) {
		var shown []string
		for _, test := range r.tests {
			name := test[0] + "." + test[1]
			if test[2] != "" {
				name += "/" + test[2]
			}
			ids, is := known[name]
			if !is {
				t.Errorf("%v: there is no test %s", r.ids, name)
			}
			shown = append(shown, ids...)
		}
		for _, id := range r.ids {
			switch {
			case seen[id]:
				t.Errorf("%s stands twice", id)
			case !left[id]:
				t.Errorf("%s is no row that binds us", id)
			case r.open && len(r.tests) > 0:
				t.Errorf("%s is not there and has tests", id)
			case !r.open && !slices.Contains(shown, id):
				t.Errorf("%s: none of its tests %v says that it shows it", id, r.tests)
			}
			seen[id] = true
			delete(left, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s is missing", id)
	}
}

// What the test above understands of a page and of a comment.
func TestCompatReading(t *testing.T) {
	got := strings.Join(rowIDs("S0-02, S0-09 to S0-11; S0-66..68, X-01 and S0-100"), " ")
	if want := "S0-02 S0-09 S0-10 S0-11 S0-66 S0-67 S0-68 S0-100"; got != want {
		t.Errorf("ids %s, want %s", got, want)
	}
	m := testName.FindStringSubmatch("`cmd/agentctl.TestScripts/life`")
	if len(m) != 4 || m[1] != "cmd/agentctl" || m[2] != "TestScripts" || m[3] != "life" {
		t.Errorf("test name %q", m)
	}
}
