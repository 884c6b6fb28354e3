package agents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stateFiles are where an engine may name a state: where rows become those of package
// machine, and the steps over sets of rows that stay SQL.
var stateFiles = []allowance{
	{"internal/store/sqlite", "journal", "maps the tables to the rows of machine"},
	{"internal/store/postgres", "journal", "maps the tables to the rows of machine"},
	{"internal/store/sqlite", "schema", "defines the tables and the indexes of open and dead rows"},
	{"internal/store/sqlite", "prune.go", "a step over sets of rows: what is old and finished"},
	{"internal/store/postgres", "prune.go", "a step over sets of rows: what is old and finished"},
	{"internal/store/sqlite", "erase.go", "a count over sets of rows: what a peer still has open"},
	{"internal/store/postgres", "erase", "a count over sets of rows: what a peer still has open"},
	{"internal/store/postgres", "leases", "a step over sets of rows: a clean release forgets the claims of its turns"},
	{"internal/store/sqlite", "db", "adopts an inbox of the external program: its fates are not known"},
}

// stateNames are the constants of states, fates, classes and delivery states.
var stateNames = regexp.MustCompile(`^(Turn(Queued|Claimed|Waiting|Done)|Fate[A-Z]\w*|Class[A-Z]\w*|Delivery(Pending|Sending|Sent|Dead|Skipped)|Step(Intent|Done|InDoubt))$`)

// stateConstants returns the constants of package store that stateNames matches, with
// their values.
func stateConstants(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("internal/store/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, id := range v.Names {
					if lit, ok := v.Values[i].(*ast.BasicLit); ok && stateNames.MatchString(id.Name) {
						out[id.Name], _ = strconv.Unquote(lit.Value)
					}
				}
			}
			return true
		})
	}
	return out
}

// statesIn returns the states that a file names: the constants, and their values as texts
// of SQL or of Go.
func statesIn(f *ast.File, constants map[string]string) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "store" && constants[n.Sel.Name] != "" {
				out = append(out, "store."+n.Sel.Name)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(n.Value)
			for _, value := range constants {
				// As a Go text, "read" is a common word; in SQL it would be quoted.
				if value != "" && (text == value && value != "read" || strings.Contains(text, "'"+value+"'")) {
					out = append(out, strconv.Quote(value))
				}
			}
		}
		return true
	})
	return out
}

// The state machine is package machine; what a state leads to is decided there and
// nowhere in an engine.
func TestEnginesNameNoState(t *testing.T) {
	constants := stateConstants(t)
	if len(constants) < 20 {
		t.Fatalf("found %d constants of states only", len(constants))
	}
	used := map[int]bool{}
	for _, r := range packages(t) {
		if !under(r.dir, "internal/store/sqlite") && !under(r.dir, "internal/store/postgres") || strings.HasSuffix(r.dir, "test") {
			continue
		}
		for _, f := range r.files {
			if f.test {
				continue
			}
			said := statesIn(f.ast, constants)
			if len(said) == 0 {
				continue
			}
			i := slices.IndexFunc(stateFiles, func(a allowance) bool { return r.dir == a.from+"/"+a.what || f.name == a.from+"/"+a.what })
			if i < 0 {
				t.Errorf("%s names %s: what it decides with it belongs to internal/store/machine", f.name, said[0])
				continue
			}
			used[i] = true
		}
	}
	reportUnused(t, stateFiles, used)
}

// The rule itself: what it must find, and what it must not.
func TestEnginesNameNoStateRule(t *testing.T) {
	constants := stateConstants(t)
	for src, want := range map[string]bool{
		`if t.State == store.TurnDone { return }`:                true,
		`tx.Exec("UPDATE turn SET state = 'done'")`:              true,
		"tx.Exec(`... WHERE d.state IN ('pending', 'sending')`)": true,
		`x := "in_doubt"`:         true,
		`return store.ErrNoTurn`:  false,
		`x := "the turn is done"`: false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() {\n"+src+"\n}", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(statesIn(f, constants)) > 0; got != want {
			t.Errorf("%s: found %v, want %v", src, got, want)
		}
	}
}
