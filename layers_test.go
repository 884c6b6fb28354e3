// Package agents_test checks the repository itself: which package may import
// which, what each may use, what every package must have (layers_test.go), that
// the documentation matches the code (docs_test.go), that names and prose use the
// words of the field (words_test.go), and that only source is committed
// (source_test.go).
//
// The tests parse the source in this process. A test that ran `go list` could be
// answered from the test cache after a change; one that opens the files is not.
// The imports of test files are not checked.
package agents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/theclaw/agents"

// layers, lowest first: a package imports only from lower rows and from its own
// family. The longest matching prefix decides, so a new folder in internal/
// starts as a noun, the strictest layer.
var layers = []struct {
	name     string
	prefixes []string
}{
	{"wire contract", []string{"proto/gen"}},
	{"error model", []string{"internal/fault"}},
	{"noun", []string{"internal"}},
	{"storage", []string{"internal/store"}},
	{"serving, dialling and backup", []string{"internal/rpc", "internal/backup"}},
	{"service", []string{"services"}},
	// The checker and the harness import complete services, so they are above
	// them: agentctl's fsck needs the checker, tests and benchmarks the harness.
	{"checker and harness", []string{"internal/invariant", "internal/testing/world", "internal/testing/backendtest"}},
	// Examples and proofs are programs too: they print and read their environment.
	{"program", []string{"cmd", "bench", "examples", "proofs"}},
}

// onlyIn keeps technology at the edges: an external library may be imported only
// in the named folders.
var onlyIn = []struct {
	library string
	folders []string
	why     string
}{
	{"github.com/spf13/cobra", []string{"cmd"}, "flags and commands belong to programs"},
	{"charm.land", []string{"cmd"}, "screens belong to programs"},
	{"github.com/jedib0t/go-pretty", []string{"cmd", "bench"}, "tables are printed by programs"},
	{"github.com/schollz/progressbar", []string{"cmd", "bench"}, "progress is shown by programs"},
	{"github.com/anthropics/anthropic-sdk-go", []string{"services/runner"}, "only the runner talks to models"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"services/runner/internal/toolset/mcp", "examples/mcp"}, "only the runner talks to servers of tools"},
	{"modernc.org/sqlite", []string{"internal/store", "internal/invariant", "bench", "proofs/standin", "internal/testing"}, "databases are opened behind the storage contract; the checker and the programs beside ours see them from outside"},
	{"modernc.org/libc", []string{"internal/store/sqlite/conn"}, "one room calls the engine; its memory is nobody else's business"},
	{"go.opentelemetry.io", []string{"internal/obs/tracing"}, "what a span says is decided in one room"},
	{"go.opentelemetry.io/otel/sdk", []string{"internal/obs/tracing/export"}, "only agentd sends spans"},
	{"github.com/jackc/pgx", []string{"internal/store", "internal/invariant", "bench"}, "databases are opened behind the storage contract; the checker sees them from outside"},
	{"github.com/coder/websocket", []string{"internal/channel/discord", "internal/channel/slack"}, "the protocol of a platform belongs to its package"},
	{"github.com/yuin/goldmark", []string{"internal/markup"}, "a text goes through the bounds of this package before it is parsed"},
	{"testing", forTests, "a program must not carry the test framework"},
}

// never are imports that the layers would allow.
var never = []allowance{
	{"internal/invariant", "services", "a checker that shares code with what it checks shares its mistakes; its tests run the services"},
	{"internal/invariant", "internal/testing/world", "the harness starts services"},
	{"services", "internal/store/sqlite", "the program opens the engine and passes it in"},
	{"services", "internal/store/postgres", "the program opens the engine and passes it in"},
	{"services", "internal/store/transfer", "it knows both engines; the program passes what a service needs of it"},
	{"internal/invariant", "internal/store/machine", "it judges what the state machine decides"},
}

// forbidden is what only programs may use.
var forbidden = strings.Fields(`print println
	os.Exit os.Getenv os.LookupEnv os.Environ os.Args os.Stdin os.Stdout os.Stderr
	fmt.Print fmt.Printf fmt.Println fmt.Scan fmt.Scanf fmt.Scanln
	log.Print log.Printf log.Println log.Fatal log.Fatalf log.Fatalln log.Panic log.Panicf log.Panicln`)

// A goPackage is a folder with its parsed files.
type goPackage struct {
	dir   string
	files []file
}

type file struct {
	name string // relative to the repository, with slashes
	test bool
	ast  *ast.File
	set  *token.FileSet // the positions of ast
}

// packages parses every Go file of the workspace that people write: not generated
// code, not test data, not tools (a module of its own).
func packages(t *testing.T) []*goPackage {
	t.Helper()
	fsys, set := os.DirFS("."), token.NewFileSet()
	byDir := map[string]*goPackage{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || name == "tools" || name == "proto/gen") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(parsed) {
			return nil
		}
		dir := path.Dir(name)
		if _, ok := byDir[dir]; !ok {
			byDir[dir] = &goPackage{dir: dir}
		}
		byDir[dir].files = append(byDir[dir].files, file{name, strings.HasSuffix(name, "_test.go"), parsed, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.SortedFunc(maps.Values(byDir), func(a, b *goPackage) int { return strings.Compare(a.dir, b.dir) })
}

// under reports whether dir is folder or inside it; *test means a name with that ending.
func under(dir, folder string) bool {
	suffix, open := strings.CutPrefix(folder, "*")
	return dir == folder || strings.HasPrefix(dir, folder+"/") || open && strings.HasSuffix(dir, suffix)
}

func underAny(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return under(dir, folder) })
}

// forTests are the packages that programs never import.
var forTests = []string{"*test", "internal/testing", "bench", "proofs"}

// layerOf returns the index into layers, or -1 when dir has no layer.
func layerOf(dir string) int {
	layer, longest := -1, 0
	for i, l := range layers {
		for _, p := range l.prefixes {
			if under(dir, p) && len(p) > longest {
				layer, longest = i, len(p)
			}
		}
	}
	return layer
}

// familyOf returns the first two path elements: services/runner/internal/turn
// belongs to services/runner.
func familyOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// importProblem describes why from may not import to, or is empty.
func importProblem(from, to string) string {
	lf, lt := layerOf(from), layerOf(to)
	switch {
	case lf < 0 || lt < 0:
		return fmt.Sprintf("imports %s, and one of the two has no layer", to)
	case underAny(to, forTests) && !underAny(from, forTests):
		return fmt.Sprintf("imports %s, which is for tests", to)
	case slices.ContainsFunc(never, func(n allowance) bool { return under(from, n.from) && under(to, n.what) }):
		return fmt.Sprintf("imports %s, and never may", to)
	case lt > lf:
		return fmt.Sprintf("(%s) imports upward: %s (%s)", layers[lf].name, to, layers[lt].name)
	case lt == lf && familyOf(from) != familyOf(to):
		return fmt.Sprintf("(%s) imports sideways: %s", layers[lf].name, to)
	}
	return ""
}

// allows reports whether a table has a row for from (a folder or what is in it) and what, and marks the row.
func allows(table []allowance, used map[int]bool, from, what string) bool {
	for i, a := range table {
		if under(from, a.from) && a.what == what {
			used[i] = true
			return true
		}
	}
	return false
}

func reportUnused(t *testing.T, table []allowance, used map[int]bool) {
	for i, a := range table {
		if !used[i] || a.why == "" {
			t.Errorf("%s: the allowance for %s has no reason or is not needed any more", a.from, a.what)
		}
	}
}

func TestLayers(t *testing.T) {
	used := map[int]bool{}
	for _, r := range packages(t) {
		for _, f := range r.files {
			if f.test {
				continue
			}
			if layerOf(r.dir) < 0 {
				t.Errorf("%s: this folder has no layer: add it to the table", f.name)
			}
			for _, spec := range f.ast.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				to, ours := strings.CutPrefix(imported, modulePath+"/")
				if !ours {
					for _, rule := range onlyIn {
						if under(imported, rule.library) && !underAny(r.dir, rule.folders) {
							t.Errorf("%s imports %s: %s", f.name, imported, rule.why)
						}
					}
				} else if p := importProblem(r.dir, to); p != "" && !allows(sideways, used, r.dir, to) {
					t.Errorf("%s %s", f.name, p)
				}
			}
		}
	}
	reportUnused(t, sideways, used)
}

// The rules themselves, so that a gap in them is found while the tree is clean.
func TestLayerRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"cmd/agentctl", "internal/store/storetest", false},
		{"cmd/agentctl", "internal/invariant", true},
		{"cmd/agentctl", "cmd/agentd", false},
		{"cmd/agentd", "bench", false},
		{"services/runner", "services/runner/internal/turn", true},
		{"services/runner", "services/registry", false},
		{"services/runner/internal/turn", "services/deliverer", false},
		{"services/registry", "internal/testing/world", false},
		{"services/registry", "internal/store", true},
		{"services/registry", "internal/store/sqlite", false},
		{"services/registry/internal/standalone", "internal/store/sqlite/homedb", false},
		{"services/registry/internal/cluster", "internal/store/postgres/leases", false},
		{"services/registry/internal/cluster", "internal/store/transfer", false},
		{"services/runner", "internal/store/postgres", false},
		{"cmd/agentd", "internal/store/postgres", true},
		{"internal/testing/world", "internal/store/sqlite", true},
		{"internal/testing/world", "services/registry", true},
		{"internal/invariant/record", "services/registry", false},
		{"internal/rpc", "services/registry", false},
		{"internal/store/sqlite", "internal/store", true},
		{"internal/thread", "internal/store", false},
		{"internal/thread", "internal/anything", false},
		{"internal/fault", "internal/thread", false},
		{"pkg/thing", "internal/fault", false},
	} {
		if p := importProblem(c.from, c.to); (p == "") != c.ok {
			t.Errorf("%s -> %s: allowed %v, want %v (%s)", c.from, c.to, p == "", c.ok, p)
		}
	}
}

// Below cmd nothing ends the process, reads its environment or prints: callers in
// tests and a second service in the same process could not work with it.
func TestBelowProgramsNothingSpeaks(t *testing.T) {
	used := map[int]bool{}
	for _, r := range packages(t) {
		if layerOf(r.dir) >= layerOf("cmd") {
			continue
		}
		for _, f := range r.files {
			if f.test {
				continue
			}
			names := map[string]string{} // local name -> import path
			for _, spec := range f.ast.Imports {
				p, _ := strconv.Unquote(spec.Path.Value)
				names[path.Base(p)] = p
				if spec.Name != nil {
					names[spec.Name.Name] = p
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				said := ""
				switch n := n.(type) {
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok {
						said = id.Name
					}
				case *ast.SelectorExpr:
					if id, ok := n.X.(*ast.Ident); ok {
						said = names[id.Name] + "." + n.Sel.Name
					}
				}
				if slices.Contains(forbidden, said) && !allows(spoken, used, r.dir, said) {
					t.Errorf("%s uses %s: take it as an argument from cmd", f.name, said)
				}
				return true
			})
		}
	}
	reportUnused(t, spoken, used)
}

// Every package has a comment that says what it does.
func TestPackageDocs(t *testing.T) {
	for _, r := range packages(t) {
		name, documented, code := "", false, false
		for _, f := range r.files {
			if f.test {
				continue
			}
			name, code = f.ast.Name.Name, true
			doc := f.ast.Doc.Text()
			documented = documented || (strings.HasPrefix(doc, "Package "+name+" ") || name == "main" && doc != "")
		}
		if code && !documented {
			t.Errorf("%s: no doc comment that begins with \"Package %s \"", r.dir, name)
		}
		if i := slices.IndexFunc(badNames, func(bad string) bool { return name == bad || slices.Contains(strings.Split(r.dir, "/"), bad) }); i >= 0 {
			t.Errorf("%s: %q does not describe the package", r.dir, badNames[i])
		}
	}
}
