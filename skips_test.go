package agents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// A skipped test reports what is missing, and fails in the merge gate instead. Package
// need does both: no other package skips. `testing.Short` would skip tests silently.
func TestSkipsAreNeeds(t *testing.T) {
	for _, r := range packages(t) {
		if r.dir == "internal/testing/need" {
			continue
		}
		for _, f := range r.files {
			for _, line := range skips(f.ast) {
				t.Errorf("%s: %s: call package internal/testing/need, or build the file with the tag proof only", f.name, line)
			}
		}
	}
}

// skips are the calls of Skip, Skipf, SkipNow and testing.Short in a file. A *rapid.T
// is different: its Skip drops one example of a property.
func skips(f *ast.File) (found []string) {
	var walk func(n ast.Node, drops map[string]bool)
	walk = func(n ast.Node, drops map[string]bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil {
					walk(n.Body, within(n.Type, drops))
				}
				return false
			case *ast.FuncLit:
				walk(n.Body, within(n.Type, drops))
				return false
			case *ast.SelectorExpr:
				of := text(n.X)
				switch name := n.Sel.Name; {
				case name == "Short" && of == "testing", (name == "Skip" || name == "Skipf" || name == "SkipNow") && !drops[of]:
					found = append(found, of+"."+name)
				}
			}
			return true
		})
	}
	walk(f, map[string]bool{})
	return found
}

// within are the names of *rapid.T in a function: its parameters hide outer ones.
func within(fn *ast.FuncType, outer map[string]bool) map[string]bool {
	names := map[string]bool{}
	for name, is := range outer {
		names[name] = is
	}
	for _, p := range fn.Params.List {
		for _, name := range p.Names {
			names[name.Name] = text(p.Type) == "*rapid.T"
		}
	}
	return names
}

// text is a short expression as it is written.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.StarExpr:
		return "*" + text(e.X)
	}
	return fmt.Sprintf("%T", e)
}

// The rule itself, so that a gap in it is found while the tree is clean.
func TestSkipRules(t *testing.T) {
	for body, want := range map[string]string{
		"func TestA(t *testing.T) { t.Skip(`no root`) }":                                                            "t.Skip",
		"func TestA(t *testing.T) { if x { t.Skipf(`%d`, 1) } }":                                                    "t.Skipf",
		"func TestA(t *testing.T) { t.Run(``, func(t *testing.T) { t.SkipNow() }) }":                                "t.SkipNow",
		"func BenchmarkA(b *testing.B) { b.Skip() }":                                                                "b.Skip",
		"func FuzzA(f *testing.F) { f.Skip() }":                                                                     "f.Skip",
		"func helper(tb testing.TB) { tb.Helper(); tb.Skip() }":                                                     "tb.Skip",
		"func (s script) Skip(args ...any) { s.T.Skip(args...) }":                                                   "s.T.Skip",
		"func TestA(t *testing.T) { skip := t.Skip; skip() }":                                                       "t.Skip",
		"func TestA(t *testing.T) { if testing.Short() { return } }":                                                "testing.Short",
		"func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }":                                "",
		"func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) {}); t.Skip() }":                                "t.Skip",
		"func TestA(t *testing.T) { rapid.Check(t, func(r *rapid.T) { r.Skip(); t.Skip() }) }":                      "t.Skip",
		"func TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { go func(t *testing.T) { t.Skip() }(nil) }) }": "t.Skip",
		"func TestA(t *testing.T) { need.Root(t); t.Log(`Skip`) }":                                                  "",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x_test.go", "package x\n"+body, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(skips(f), " "); got != want {
			t.Errorf("%s: found %q, want %q", body, got, want)
		}
	}
}
