package agents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Only the program that opens the storage decides which one a registry has: what differs
// is behind interfaces (registry/standalone, registry/cluster). So below services, in files
// that are not tests,
//
//	named     no field, function, method, variable or constant has a name that says which
//	          implementation this is (mode), and none of that name is used
//	asserted  no type assertion and no type switch has as its operand a value of an
//	          interface of the storage or of the implementations (backends), or asks for
//	          such an interface, for a type of an implementation or of an engine, or for a
//	          method with such a name
//	absent    no such value is compared with nil: an implementation that has nothing to
//	          do there does nothing
//	word      nothing is compared with the word for an engine or an implementation
//
// Types are recognized by their declarations, not checked: a value is a backend when a field,
// a result or a variable of its name is declared with such a type anywhere in the package,
// or a parameter or a variable in the same function.

// mode are the names that say which implementation this is.
var mode = regexp.MustCompile(`(?i)^(is|has|in|on|use|uses|using|with)?(shared|embedded|standalone|clusters?|clustered|sqlite|postgres|postgresql|sharded|distributed)(mode|backend|engine|registry)?$`)

// modeWords are those words as values.
var modeWords = regexp.MustCompile(`(?i)^(shared|embedded|standalone|cluster|clustered|sqlite|postgres|postgresql)$`)

// modeAllowed are names that say something else.
var modeAllowed = []allowance{
	{"services/runner", "shared", "the setting workdir.shared: a directory that all runners have"},
}

// engineFolders are where the interfaces of the storage are declared.
var engineFolders = []string{"internal/store", "internal/lease", "internal/lease/authority"}

// implementations are the packages whose types no service may assert.
var implementations = []string{
	"services/registry/internal/standalone", "services/registry/internal/cluster", "internal/store/sqlite", "internal/store/postgres",
}

// backends are the interfaces that the storage and the registry declare, as
// "folder.Name".
func backends(all []*goPackage) map[string]bool {
	out := map[string]bool{}
	for _, r := range all {
		if !slices.Contains(engineFolders, r.dir) && !under(r.dir, "services/registry") {
			continue
		}
		for _, f := range r.files {
			if f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				gen, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range gen.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok {
						if _, is := t.Type.(*ast.InterfaceType); is || t.Assign.IsValid() {
							out[r.dir+"."+t.Name.Name] = true
						}
					}
				}
			}
		}
	}
	return out
}

// scan looks at one package.
type scan struct {
	dir      string
	known    map[string]bool // backends
	values   map[string]bool // names of values that are backends, of the package
	local    map[string]bool // those of the function that is looked at
	allowed  map[int]bool    // rows of modeAllowed that were used
	problems []string
	file     file
	imports  map[string]string // local name -> folder, of the file
}

func (s *scan) problem(n ast.Node, rule, format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf("%s: %s: ", s.file.name, rule)+fmt.Sprintf(format, args...))
}

// folder answers the name of a type as backends has it, "" for one that has none.
func (s *scan) folder(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return s.dir + "." + t.Name
	case *ast.SelectorExpr:
		if p, ok := t.X.(*ast.Ident); ok && s.imports[p.Name] != "" {
			return s.imports[p.Name] + "." + t.Sel.Name
		}
	case *ast.StarExpr:
		return s.folder(t.X)
	case *ast.ParenExpr:
		return s.folder(t.X)
	}
	return ""
}

// backend reports whether a type is one of the backends', or of an implementation.
func (s *scan) backend(t ast.Expr) bool {
	if i, ok := t.(*ast.InterfaceType); ok { // made of others
		return slices.ContainsFunc(i.Methods.List, func(m *ast.Field) bool { return len(m.Names) == 0 && s.backend(m.Type) })
	}
	name := s.folder(t)
	return s.known[name] || name != "" && s.implementation(name)
}

func (s *scan) implementation(name string) bool {
	return slices.ContainsFunc(implementations, func(dir string) bool {
		return dir != s.dir && under(path.Dir(name)+"/"+strings.SplitN(path.Base(name), ".", 2)[0], dir)
	})
}

func (s *scan) open(f file) {
	s.file, s.imports = f, map[string]string{}
	for _, spec := range f.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		s.imports[name] = strings.TrimPrefix(p, modulePath+"/")
	}
}

// declared notes the values of the package that are backends.
func (s *scan) declared(n ast.Node) bool {
	if f, ok := n.(*ast.FuncDecl); ok {
		if f.Type.Results != nil && len(f.Type.Results.List) > 0 && s.backend(f.Type.Results.List[0].Type) {
			s.values[f.Name.Name] = true
		}
		return false
	}
	return s.noted(n, s.values)
}

// noted notes the values that a node declares as backends.
func (s *scan) noted(n ast.Node, values map[string]bool) bool {
	note := func(names []*ast.Ident, t ast.Expr) {
		for _, name := range names {
			if t != nil && s.backend(t) {
				values[name.Name] = true
			}
		}
	}
	switch n := n.(type) {
	case *ast.Field:
		if f, ok := n.Type.(*ast.FuncType); ok { // a method of an interface, or a function as a value
			if f.Results != nil && len(f.Results.List) > 0 {
				note(n.Names, f.Results.List[0].Type)
			}
			return true
		}
		if len(n.Names) == 0 && s.backend(n.Type) { // embedded: its name is that of its type
			name := s.folder(n.Type)
			values[name[strings.LastIndexByte(name, '.')+1:]] = true
		}
		note(n.Names, n.Type)
	case *ast.ValueSpec:
		note(n.Names, n.Type)
	}
	return true
}

// value answers the last name of an operand, and whether it is a backend.
func (s *scan) value(x ast.Expr) (name string, is bool) {
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr:
		if name, is = s.value(x.Fun); name == "any" && len(x.Args) == 1 {
			return s.value(x.Args[0])
		}
		return name, is
	case *ast.ParenExpr:
		return s.value(x.X)
	case *ast.UnaryExpr:
		return s.value(x.X)
	}
	return name, s.values[name] || s.local[name]
}

// asks reports a type that must not be asked for.
func (s *scan) asks(t ast.Expr) {
	if t == nil {
		return
	}
	if s.backend(t) {
		s.problem(t, "asserted", "asks for %s", s.folder(t))
	}
	if i, ok := t.(*ast.InterfaceType); ok {
		for _, m := range i.Methods.List {
			for _, name := range m.Names {
				if mode.MatchString(name.Name) {
					s.problem(t, "asserted", "asks for a method %s", name.Name)
				}
			}
		}
	}
}

// used reports what a node does with a backend.
func (s *scan) used(n ast.Node) bool {
	names := func(list ...*ast.Ident) {
		for _, name := range list {
			if mode.MatchString(name.Name) && !allows(modeAllowed, s.allowed, s.dir, name.Name) {
				s.problem(name, "named", "declares %s", name.Name)
			}
		}
	}
	switch n := n.(type) {
	case *ast.Field:
		names(n.Names...)
	case *ast.ValueSpec:
		names(n.Names...)
	case *ast.FuncDecl:
		names(n.Name)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, l := range n.Lhs {
				if name, ok := l.(*ast.Ident); ok {
					names(name)
				}
			}
		}
	case *ast.SelectorExpr:
		if mode.MatchString(n.Sel.Name) && !s.allows(n) {
			s.problem(n, "named", "uses %s", n.Sel.Name)
		}
	case *ast.TypeAssertExpr:
		if name, is := s.value(n.X); is {
			s.problem(n, "asserted", "asks what %s is", name)
		}
		s.asks(n.Type)
	case *ast.TypeSwitchStmt:
		for _, c := range n.Body.List {
			for _, t := range c.(*ast.CaseClause).List {
				s.asks(t)
			}
		}
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			for _, v := range c.(*ast.CaseClause).List {
				s.word(v)
			}
		}
	case *ast.BinaryExpr:
		if n.Op != token.EQL && n.Op != token.NEQ {
			return true
		}
		for _, pair := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
			if null, ok := pair[1].(*ast.Ident); ok && null.Name == "nil" {
				if name, is := s.value(pair[0]); is {
					s.problem(n, "absent", "compares %s with nil", name)
				}
			}
			s.word(pair[0])
		}
	}
	return true
}

func (s *scan) word(x ast.Expr) {
	if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if text, err := strconv.Unquote(lit.Value); err == nil && modeWords.MatchString(text) {
			s.problem(x, "word", "compares with %q", text)
		}
	}
}

func (s *scan) allows(n *ast.SelectorExpr) bool {
	if p, ok := n.X.(*ast.SelectorExpr); ok {
		return allows(modeAllowed, s.allowed, s.dir, p.Sel.Name+"."+n.Sel.Name)
	}
	return false
}

// modeProblems answers what is wrong with a package.
func modeProblems(r *goPackage, known map[string]bool, allowed map[int]bool) []string {
	s := &scan{dir: r.dir, known: known, values: map[string]bool{}, allowed: allowed}
	for _, visit := range []func(ast.Node) bool{s.declared, s.used} {
		for _, f := range r.files {
			if f.test {
				continue
			}
			s.open(f)
			for _, d := range f.ast.Decls {
				s.local = map[string]bool{}
				if _, ok := d.(*ast.FuncDecl); ok {
					ast.Inspect(d, func(n ast.Node) bool { return s.noted(n, s.local) })
				}
				ast.Inspect(d, visit)
			}
		}
	}
	return s.problems
}

func TestNoModes(t *testing.T) {
	all := packages(t)
	known, used, seen := backends(all), map[int]bool{}, 0
	for _, r := range all {
		if !under(r.dir, "services") {
			continue
		}
		seen++
		for _, p := range modeProblems(r, known, used) {
			t.Error(p)
		}
	}
	reportUnused(t, modeAllowed, used)
	if seen < 30 {
		t.Errorf("only %d packages were looked at", seen)
	}
	for _, want := range []string{
		"internal/store.Engine", "internal/store.Leases", "internal/store.Workdirs", "internal/lease/authority.Authority", "services/registry.ClusterEngine", "services/registry.backend",
		"services/registry/internal/standalone.Engine", "services/registry/internal/cluster.Engine", "services/registry/internal/agents.Agents", "services/registry/internal/leases.Due",
	} {
		if !known[want] {
			t.Errorf("%s is not known as a backend", want)
		}
	}
}

// The rules themselves: each of these is found, by the rule that is named, and what is
// allowed is not.
func TestNoModesRules(t *testing.T) {
	known := backends(packages(t))
	for _, c := range []struct{ rule, code string }{
		{"named", `type Service struct { Shared *int }`},
		{"named", `type Engine interface { IsShared() bool }`},
		{"named", `func (s *Service) IsCluster() bool { return true }`},
		{"named", `func f(s *Service) { if s.eng.Embedded() { return } }`},
		{"named", `func f(s *Service) { if s.Standalone != 0 { return } }`},
		{"named", `func f() { clustered := true; _ = clustered }`},
		{"named", `const postgres = true`},
		{"asserted", `func f(s *Service) { if _, ok := s.eng.(interface{ Able() error }); ok { return } }`},
		{"asserted", `func f(e store.Engine) { switch e.(type) { case interface{ Able() error }: } }`},
		{"asserted", `func f(e store.Engine) { if _, ok := any(e).(error); ok { return } }`},
		{"asserted", `func open() store.Engine { return nil }
func f() { _, _ = open().(error) }`},
		{"asserted", `func f(s *Service) { _, _ = s.dirs.(error) }`},
		{"asserted", `func f(x any) { _, _ = x.(cluster.Engine) }`},
		{"asserted", `func f(x any) { _, _ = x.(*standalone.Registry) }`},
		{"asserted", `func f(x any) { switch x.(type) { case *sqlite.Engine: } }`},
		{"asserted", `func f(x any) { _, _ = x.(*leases.Table) }`},
		{"asserted", `func f(x any) { _, _ = x.(interface{ IsShared() bool }) }`},
		{"absent", `func f(s *Service) { if s.dirs != nil { return } }`},
		{"absent", `func f(e store.Engine) { if nil == e { return } }`},
		{"absent", `func f(s *Service) { if s.both == nil { return } }`},
		{"word", `func f(kind string) { if kind == "postgres" { return } }`},
		{"word", `func f(kind string) { switch kind { case "sqlite": } }`},
		{"", `func f(s *Service) { if _, err := s.eng.State(nil, "a"); err != nil { return } }`},
		{"", `func f(err error) { if _, ok := err.(*held); ok { return } }`},
		{"", `func f(x any) { switch x.(type) { case string, *held: } }`},
		{"", `func f(kind string) { if kind == "user" { return } }`},
		{"", `func f(trace *held) { if trace == nil { return } }`},
		{"", `func f(e *held) { if e == nil { return } }
func g(e store.Engine) { _ = e }`},
	} {
		src := `package turns
import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/services/registry/internal/cluster"
	"github.com/theclaw/agents/services/registry/internal/standalone"
)
type held struct{}
type Service struct { eng store.Engine; dirs store.Workdirs; both interface { store.Threads; store.Turns } }
` + c.code
		parsed, err := parser.ParseFile(token.NewFileSet(), "snippet.go", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		found := modeProblems(&goPackage{dir: "services/registry/internal/turns", files: []file{{name: "snippet.go", ast: parsed}}}, known, map[int]bool{})
		switch {
		case c.rule == "" && len(found) > 0:
			t.Errorf("refused: %s\n%s", c.code, strings.Join(found, "\n"))
		case c.rule != "" && !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, ": "+c.rule+": ") }):
			t.Errorf("not found as %s: %s (%q)", c.rule, c.code, found)
		}
	}
}

// Each test of the registry runs over both implementations: it is nothing but a call of
// backendtest.Each. What concerns one of them alone is tested where that is.
func TestRegistryTestsRunOverBoth(t *testing.T) {
	n := 0
	for _, r := range packages(t) {
		if r.dir != "services/registry" {
			continue
		}
		for _, f := range r.files {
			for _, d := range f.ast.Decls {
				test, ok := d.(*ast.FuncDecl)
				if !ok || !f.test || test.Recv != nil || !strings.HasPrefix(test.Name.Name, "Test") {
					continue
				}
				n++
				if !isEach(test.Body) {
					t.Errorf("%s: %s is not a call of backendtest.Each", f.name, test.Name.Name)
				}
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d tests", n)
	}
}

func isEach(body *ast.BlockStmt) bool {
	if len(body.List) != 1 {
		return false
	}
	x, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := x.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	p, ok := f.X.(*ast.Ident)
	return ok && p.Name == "backendtest" && f.Sel.Name == "Each"
}
