package agents_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What a tool does is decided by its package, through the port (runner/toolset). Code that
// compares the name of a call or a step with a constant is a second place where a tool is
// described, which changes of the tool miss.
const toolset = "services/runner/internal/toolset"

// knowNames may compare names of tools.
var knowNames = []string{
	toolset, "services/runner/internal/model/offline",
	"*test", "proofs/standin", // scripts of models, and another program
}

// otherNames hold names that are no tools'.
var otherNames = []string{"services/runner/internal/model/provider"}

// namesCompared are the comparisons that stay, by file and expression.
var namesCompared = []allowance{
	{"internal/toolpolicy/name.go", `"bash_exec": "exec"`, "settings name tools, by any of their names"},
	{"internal/toolpolicy/name.go", `"message_send": "message"`, "settings name tools, by any of their names"},
	{"internal/source/source.go", "a.ConvType == Process", "the registry's events about processes have the name of the tool in their source"},
	{"services/runner/internal/prompt/system.go", `toolpolicy.Canonical(t.Name) == "exec"`, "the text names the tool as the presentation does"},
	{"internal/execpolicy/safe.go", `"grep": {"rRfdD", []string{"recursive", "dereference-recursive", "file", "exclude-from", "directories", "devices"}}`, "the program of the system has the name of a tool"},
	{"services/registry/internal/wire/turn.go", "store.ClassRead: registryv1.ToolClass_TOOL_CLASS_READ", "the class has the name of a tool"},
	{"internal/channel/receiver.go", "action == ActionEdit", "an action on a message has the name of a tool"},
	{"services/registry/internal/turns/address.go", "said.GetAction() == channel.ActionEdit", "an action on a message has the name of a tool"},
	{"cmd/agentctl/internal/chat/run.go", `i.Tool == "message_send"`, "the console shows a message before it is journaled; RunStream does not say yet that a call speaks to the peer"},
	{"cmd/agentctl/internal/chat/plain.go", `i.Tool == "message_send"`, "the console shows a message before it is journaled; RunStream does not say yet that a call speaks to the peer"},
}

// names finds comparisons of the names of tools.
type names struct {
	tools  []string                     // names of tools
	consts map[string]map[string]string // directory -> constant -> value
}

// newNames reads the constants of all packages, and which of them are names of tools: those
// that a Spec in a package of toolset has.
func newNames(all []*goPackage) *names {
	n := &names{consts: map[string]map[string]string{}}
	each(all, func(dir string, f file) {
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				s := s.(*ast.ValueSpec)
				for i, v := range s.Values {
					if text, ok := literal(v); ok {
						if n.consts[dir] == nil {
							n.consts[dir] = map[string]string{}
						}
						n.consts[dir][s.Names[i].Name] = text
					}
				}
			}
		}
	})
	each(all, func(dir string, f file) {
		if !under(dir, toolset) {
			return
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			c, ok := node.(*ast.CompositeLit)
			if !ok || !strings.HasSuffix(printed(c.Type), "Spec") {
				return true
			}
			for _, e := range c.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok || printed(kv.Key) != "Name" {
					continue
				}
				if name, ok := n.constant(dir, f, kv.Value); ok {
					n.tools = append(n.tools, name)
				}
			}
			return true
		})
	})
	slices.Sort(n.tools)
	n.tools = slices.Compact(n.tools)
	return n
}

func each(all []*goPackage, do func(dir string, f file)) {
	for _, r := range all {
		for _, f := range r.files {
			if !f.test {
				do(r.dir, f)
			}
		}
	}
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

// constant is the value of a constant text.
func (n *names) constant(dir string, f file, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return n.constant(dir, f, e.X)
	case *ast.BasicLit:
		return literal(e)
	case *ast.Ident:
		v, ok := n.consts[dir][e.Name]
		return v, ok
	case *ast.CallExpr: // a conversion, such as []byte("x")
		if len(e.Args) == 1 {
			if _, ok := e.Fun.(*ast.ArrayType); ok || printed(e.Fun) == "string" {
				return n.constant(dir, f, e.Args[0])
			}
		}
	case *ast.SelectorExpr:
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if in, ours := strings.CutPrefix(imported, modulePath+"/"); ours && local == printed(e.X) {
				v, ok := n.consts[in][e.Sel.Name]
				return v, ok
			}
		}
	}
	return "", false
}

func printed(n ast.Node) string {
	var b strings.Builder
	if n == nil || printer.Fprint(&b, token.NewFileSet(), n) != nil {
		return ""
	}
	return b.String()
}

// named reports whether an expression reads a name, as of a call or a step.
func named(e ast.Expr) bool {
	if p, ok := e.(*ast.ParenExpr); ok {
		return named(p.X)
	}
	if c, ok := e.(*ast.CallExpr); ok {
		e = c.Fun
		if len(c.Args) == 1 { // strings.ToLower(c.Name)
			return named(c.Args[0])
		}
	}
	s, ok := e.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Name", "GetName", "Tool", "GetTool", "ToolName"}, s.Sel.Name)
}

// compared returns the expressions in a file that compare the name of a tool, or in the
// runner the name of anything, with a constant.
func (n *names) compared(dir string, f file) (found []string) {
	runner := under(dir, "services/runner") && !underAny(dir, otherNames)
	bad := func(at ast.Node, what, with ast.Expr) {
		v, ok := n.constant(dir, f, with)
		file := strings.ContainsAny(v, "/.")
		if ok && (slices.Contains(n.tools, v) || runner && v != "" && !file && what != nil && named(what)) {
			found = append(found, printed(at))
		}
	}
	ast.Inspect(f.ast, func(node ast.Node) bool {
		switch e := node.(type) {
		case *ast.BinaryExpr:
			if e.Op == token.EQL || e.Op == token.NEQ {
				bad(e, e.X, e.Y)
				bad(e, e.Y, e.X)
			}
		case *ast.SwitchStmt:
			for _, s := range e.Body.List {
				for _, c := range s.(*ast.CaseClause).List {
					bad(c, e.Tag, c)
				}
			}
		case *ast.IndexExpr: // a table by name
			bad(e, nil, e.Index)
		case *ast.CompositeLit:
			if _, ok := e.Type.(*ast.MapType); ok {
				for _, kv := range e.Elts {
					if kv, ok := kv.(*ast.KeyValueExpr); ok {
						bad(kv, nil, kv.Key)
					}
				}
			}
		case *ast.CallExpr:
			s, ok := e.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"strings", "bytes", "slices", "cmp"}, printed(s.X)) {
				return true
			}
			for i, with := range e.Args {
				for j, what := range e.Args {
					if i != j {
						bad(e, what, with)
						break
					}
				}
			}
		}
		return true
	})
	slices.Sort(found)
	return slices.Compact(found)
}

func TestNobodyComparesNamesOfTools(t *testing.T) {
	all, used := packages(t), map[int]bool{}
	n := newNames(all)
	for _, name := range []string{"bash_exec", "message_send"} {
		if !slices.Contains(n.tools, name) {
			t.Errorf("the tools are %q: this test does not find %s any more", n.tools, name)
		}
	}
	each(all, func(dir string, f file) {
		if underAny(dir, knowNames) {
			return
		}
		for _, e := range n.compared(dir, f) {
			if !allows(namesCompared, used, f.name, e) {
				t.Errorf("%s: `%s` compares the name of a tool: let the tool decide (runner/toolset), or give the reason in the table", f.name, e)
			}
		}
	})
	reportUnused(t, namesCompared, used)
}

// The rules themselves, so that a gap in them is found while the tree is clean.
func TestNameRules(t *testing.T) {
	parse := func(dir, src string) *goPackage {
		f, err := parser.ParseFile(token.NewFileSet(), dir+"/x.go", src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return &goPackage{dir: dir, files: []file{{name: dir + "/x.go", ast: f}}}
	}
	tool := parse(toolset+"/shell", "package shell\nconst Name = \"run\"\nvar spec = toolset.Spec{Name: Name}")
	for body, in := range map[string]string{
		`if c.Name == "other" {}`:                           "services/runner/internal/turn",
		`if "other" != s.GetName() {}`:                      "services/runner/internal/turn",
		`if c.Name == shell.Name {}`:                        "services/runner/internal/turn",
		`if shell.Name == name {}`:                          "cmd/agentctl",
		`if i.Tool == "run" {}`:                             "cmd/agentctl",
		`switch c.Name { case "a", "other": }`:              "services/runner",
		`switch { case name == "run": }`:                    "services/runner",
		`switch name { case shell.Name: }`:                  "internal/testing/world",
		`_ = strings.EqualFold(c.Name, "other")`:            "services/runner",
		`_ = strings.HasPrefix(name, "run")`:                "internal/explain",
		`_ = slices.Contains([]string{"a"}, string("run"))`: "internal/explain",
		`_ = strings.ToLower(c.Name) == "other"`:            "services/runner",
		`_ = map[string]int{"run": 1}[c.Name]`:              "services/runner",
		`_ = classes["run"]`:                                "services/registry",
		`const local = "other"; _ = c.Name == (own)`:        "services/runner",
	} {
		src := "package x\nimport (\n\"strings\"\n\"slices\"\n\"" + modulePath + "/" + toolset + "/shell\"\n)\nconst own = \"other\"\nfunc f() { " + body + " }"
		r := parse(in, src)
		if found := newNames([]*goPackage{tool, r}).compared(in, r.files[0]); len(found) == 0 {
			t.Errorf("%s in %s was not found", body, in)
		}
	}
	for body, in := range map[string]string{
		`if c.Name == "" {}`:                   "services/runner",
		`if c.Name == name {}`:                 "services/runner",
		`if f.Name == "memory/agent.md" {}`:    "services/runner",
		`if a.Name == b.Name {}`:               "services/runner",
		`if p.Name == "ollama" {}`:             "services/runner/internal/model/provider",
		`if f.Name == "other" {}`:              "cmd/agentctl",
		`_ = model.ToolCall{Name: shell.Name}`: "services/runner",
		`_ = "run"`:                            "services/runner",
	} {
		src := "package x\nimport \"" + modulePath + "/" + toolset + "/shell\"\nfunc f() { " + body + " }"
		r := parse(in, src)
		if found := newNames([]*goPackage{tool, r}).compared(in, r.files[0]); len(found) > 0 {
			t.Errorf("%s in %s: found %q", body, in, found)
		}
	}
}

// Each tool passes the suite.
func TestEveryToolRunsTheSuite(t *testing.T) {
	for _, r := range packages(t) {
		if path.Dir(r.dir) != toolset || underAny(r.dir, []string{"*test"}) {
			continue
		}
		runs := slices.ContainsFunc(r.files, func(f file) bool {
			found := false
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					found = found || printed(s) == "toolsettest.Run"
				}
				return !found
			})
			return f.test && found
		})
		if !runs {
			t.Errorf("%s: no test calls toolsettest.Run", r.dir)
		}
	}
}
