package agents_test

import (
	"flag"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The acceptance rows are in testdata/spec/rows.txt: id, priority, section and subject. The
// page docs/spec/rows.md lists each with the tests that name it. `make rows` writes it.
var writeRows = flag.Bool("write-rows", false, "write docs/spec/rows.md instead of comparing it")

const rowsFile = "testdata/spec/rows.txt"

// An acceptanceRow is a line of rowsFile.
type acceptanceRow struct{ id, priority, section, subject string }

func acceptanceRows(t *testing.T) (rows []acceptanceRow) {
	t.Helper()
	raw, err := os.ReadFile(rowsFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) != 4 {
			t.Fatalf("%s: %q has not four cells", rowsFile, line)
		}
		rows = append(rows, acceptanceRow{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// anyRow is one row id, or a range of them, of any set.
var anyRow = regexp.MustCompile(`\bS([0-4])-(\d+)(?:(?: to |\.\.)(?:S([0-4])-)?(\d+))?`)

// anyRowIDs are the ids of all sets in a text, with ranges expanded. A range stays in its set.
func anyRowIDs(text string) (ids []string) {
	for _, m := range anyRow.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[4] != "" && (m[3] == "" || m[3] == m[1]) {
			last, _ = strconv.Atoi(m[4])
		}
		for n := first; n <= last; n++ {
			ids = append(ids, fmt.Sprintf("S%s-%02d", m[1], n))
		}
		if m[3] != "" && m[3] != m[1] { // two rows of two sets, and no range
			n, _ := strconv.Atoi(m[4])
			ids = append(ids, fmt.Sprintf("S%s-%02d", m[3], n))
		}
	}
	return ids
}

// comment removes the marks of a line comment, also where it continues.
var comment = regexp.MustCompile(`(?m)^[ \t]*(?://|#)[ \t]?`)

// rowsNamed are the ids that each test and script names, by where it names them: DIRECTORY.Name
// for a test, cmd/agentctl.TestScripts/NAME for a scenario of agentctl, and the path of the file for
// what stands outside of both. Only what is run as a test, a proof or a benchmark is read:
// neither product code nor the pages. Every test is there, also one that names no row.
func rowsNamed(t *testing.T) map[string][]string {
	t.Helper()
	named := map[string][]string{}
	add := func(where, text string) {
		named[where] = append(named[where], anyRowIDs(comment.ReplaceAllString(text, ""))...)
	}
	for _, r := range packages(t) {
		if r.dir == "." { // these tests read rows, they show none
			continue
		}
		suite := underAny(r.dir, []string{"bench", "proofs", "internal/testing", contractSuite})
		for _, f := range r.files {
			if !f.test && !suite {
				continue
			}
			var tests []*ast.FuncDecl
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && f.test && testFunc.MatchString(fn.Name.Name) {
					tests = append(tests, fn)
					add(r.dir+"."+fn.Name.Name, "")
				}
			}
			in := func(n ast.Node) string {
				for _, fn := range tests {
					from := fn.Pos()
					if fn.Doc != nil {
						from = fn.Doc.Pos()
					}
					if from <= n.Pos() && n.End() <= fn.End() {
						return r.dir + "." + fn.Name.Name
					}
				}
				return f.name
			}
			for _, c := range f.ast.Comments {
				add(in(c), c.Text())
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok {
					add(in(lit), lit.Value)
				}
				return true
			})
		}
	}
	for _, root := range []string{"cmd", "services", "internal", "proofs", "deploy"} {
		err := fs.WalkDir(os.DirFS("."), root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".txtar", ".sh"}, path.Ext(name)) {
				return err
			}
			raw, err := os.ReadFile(filepath.FromSlash(name))
			where := name
			if dir, file := path.Split(name); dir == "cmd/agentctl/testdata/script/" {
				where = "cmd/agentctl.TestScripts/" + strings.TrimSuffix(file, ".txtar")
			}
			add(where, string(raw))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return named
}

// contractSuite is the package of the tests that each engine is tested with.
const contractSuite = "internal/store/storetest"

// namedBy are the tests and scripts that name a row, by its id.
func namedBy(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	named := rowsNamed(t)
	for _, where := range slices.Sorted(maps.Keys(named)) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(named[where]))) {
			out[id] = append(out[id], where)
		}
	}
	return out
}

var testFunc = regexp.MustCompile(`^(Test|Fuzz|Benchmark)`)

// leftOut are the rows that docs/compat.md leaves out on purpose.
func leftOut(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, r := range compatRows(t) {
		for _, id := range r.ids {
			if r.open {
				out[id] = true
			}
		}
	}
	return out
}

// rowTables are the tables of the page, with the figures before them.
func rowTables(t *testing.T) string {
	t.Helper()
	rows, named, out := acceptanceRows(t), namedBy(t), leftOut(t)
	type count struct{ rows, named, out int }
	sums := map[string]*count{}
	var b strings.Builder
	heading := ""
	for _, r := range rows {
		set := r.id[:2]
		if sums[set] == nil {
			sums[set] = &count{}
		}
		if h := set + ": " + r.section; h != heading {
			heading = h
			fmt.Fprintf(&b, "\n### %s\n\n| row | priority | subject | named by |\n|---|---|---|---|\n", h)
		}
		var cell string
		where := named[r.id]
		sums[set].rows++
		switch {
		case len(where) > 0:
			sums[set].named++
			cell = "`" + strings.Join(where, "`, `") + "`"
		case out[r.id]:
			sums[set].out++
			cell = "left out on purpose ([compat](../compat.md#left-out-on-purpose))"
		default:
			cell = "no test"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.id, r.priority, r.subject, cell)
	}
	var head strings.Builder
	head.WriteString("\n| set | rows | named by a test | left out on purpose | no test |\n|---|---|---|---|---|\n")
	var all count
	line := func(name string, c count) {
		fmt.Fprintf(&head, "| %s | %d | %d | %d | %d |\n", name, c.rows, c.named, c.out, c.rows-c.named-c.out)
	}
	for _, set := range slices.Sorted(maps.Keys(sums)) {
		c := *sums[set]
		line(set, c)
		all = count{all.rows + c.rows, all.named + c.named, all.out + c.out}
	}
	line("all", all)
	return head.String() + b.String() + "\n"
}

// TestDocsRows compares the page of acceptance rows with the rows and with the tests that
// name them. Every row that a test names is one of the list.
func TestDocsRows(t *testing.T) {
	known := map[string]bool{}
	for _, r := range acceptanceRows(t) {
		if known[r.id] {
			t.Errorf("%s: %s is there twice", rowsFile, r.id)
		}
		known[r.id] = true
	}
	for id, where := range namedBy(t) {
		if !known[id] {
			t.Errorf("%v: there is no row %s", where, id)
		}
	}
	generated(t, "docs/spec/rows.md", "make rows", "the rows or from the tests that name them", rowTables(t), *writeRows)
}

// What the test above understands of a comment.
func TestRowReading(t *testing.T) {
	text := "// S1-02, S0-58 to\n// S0-60; S2-09..11, S4-100 and S3-01 to S4-02, XS0-01"
	got := strings.Join(anyRowIDs(comment.ReplaceAllString(text, "")), " ")
	if want := "S1-02 S0-58 S0-59 S0-60 S2-09 S2-10 S2-11 S4-100 S3-01 S4-02"; got != want {
		t.Errorf("ids %s, want %s", got, want)
	}
}
