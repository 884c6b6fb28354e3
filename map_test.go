package agents_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The code map is docs/map.md: one line for each package, from its package comment.
// `make map` writes it.
var writeMap = flag.Bool("write-map", false, "write docs/map.md instead of comparing it")

// TestDocsMap compares the code map with the package comments.
func TestDocsMap(t *testing.T) {
	generated(t, "docs/map.md", "make map", "the package comments", codeMap(t), *writeMap)
}

// generated compares the part of a page that a command writes with what it should be, or
// writes it. from is what that comes from, in words.
func generated(t *testing.T, name, command, from, text string, write bool) {
	t.Helper()
	begin, end := "<!-- "+command+": begin -->\n", "<!-- "+command+": end -->\n"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begun := bytes.Cut(page, []byte(begin))
	_, tail, ended := bytes.Cut(rest, []byte(end))
	if !begun || !ended {
		t.Fatalf("%s has no lines %q and %q", name, begin, end)
	}
	want := slices.Concat(head, []byte(begin), []byte(text), []byte(end), tail)
	switch {
	case bytes.Equal(page, want):
	case write:
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from %s: run %s", name, from, command)
	}
}

// codeMap is a table of packages for each group of directories.
func codeMap(t *testing.T) string {
	t.Helper()
	all := packages(t)
	groups := map[string][]string{}
	for _, r := range all {
		if s := firstSentence(r); s != "" && r.dir != "." {
			g := mapGroup(all, r.dir)
			groups[g] = append(groups[g], fmt.Sprintf("| [`%s`](../%s) | %s |\n", r.dir, r.dir, strings.ReplaceAll(s, "|", `\|`)))
		}
	}
	var b strings.Builder
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "\n## %s\n\n| package | what it does |\n|---|---|\n%s", g, strings.Join(groups[g], ""))
	}
	return b.String() + "\n"
}

// firstSentence is that of a package's comment, without the words "Package x". Where there
// are only tests, it is that of their package.
func firstSentence(r *goPackage) string {
	for _, test := range []bool{false, true} {
		for _, f := range r.files {
			if f.test != test || f.ast.Doc == nil {
				continue
			}
			s := new(doc.Package).Synopsis(f.ast.Doc.Text())
			if s = strings.TrimPrefix(s, "Package "+f.ast.Name.Name+" "); s != "" {
				return s
			}
		}
	}
	return ""
}

// mapGroup is the heading under which a package stands: the first two elements of its
// directory, or the first one where no directory is below the second.
func mapGroup(all []*goPackage, dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	family := familyOf(dir)
	deeper := func(r *goPackage) bool { return strings.HasPrefix(r.dir, family+"/") }
	if first == "cmd" || first == "services" || slices.ContainsFunc(all, deeper) && first == "internal" {
		return family
	}
	return first
}

var (
	// pathSpan is a path of this repository in a page, and a function of that file.
	pathSpan = regexp.MustCompile("`((?:bench|cmd|deploy|docs|examples|internal|proofs|proto|services|tools)/[A-Za-z0-9_./-]+?)/?(?::([A-Za-z0-9_]+))?`")
	// nameSpan is a Go name in a page.
	nameSpan = regexp.MustCompile("`([A-Z][a-z]+(?:[A-Z][A-Za-z0-9]*)*)`")
	// pagesOfCode are the pages whose paths are held to the tree.
	pagesOfCode = []string{"docs/architecture.md", "docs/decisions", "docs/spec/README.md", "docs/spec/reliability.md", "docs/spec/security.md", "docs/spec/contracts.md", "CONTRIBUTING.md"}
)

// TestDocsPaths checks that each path of the pages about the code is there, that each
// file:function names a function that the file declares, and that the Go names of
// docs/architecture.md are in the source.
func TestDocsPaths(t *testing.T) {
	declared, names := map[string]map[string]bool{}, map[string]bool{}
	for _, r := range packages(t) {
		for _, f := range r.files {
			declared[f.name] = map[string]bool{}
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					declared[f.name][fn.Name.Name] = true
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					names[id.Name] = true
				}
				return true
			})
		}
	}
	for _, name := range pages(t) {
		if !underAny(name, pagesOfCode) {
			continue
		}
		raw, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pathSpan.FindAllStringSubmatch(string(raw), -1) {
			_, err := os.Stat(filepath.FromSlash(m[1]))
			if dir, _, named := strings.Cut(path.Base(m[1]), "."); err != nil && named && strings.HasPrefix(name, "docs/spec/") {
				_, err = os.Stat(filepath.FromSlash(path.Join(path.Dir(m[1]), dir))) // DIRECTORY.Name
			}
			switch {
			case err != nil:
				t.Errorf("%s names %s, which does not exist", name, m[1])
			case m[2] != "" && !declared[m[1]][m[2]]:
				t.Errorf("%s names %s:%s, and the file declares no such function", name, m[1], m[2])
			}
		}
		for _, m := range nameSpan.FindAllStringSubmatch(string(raw), -1) {
			if name == "docs/architecture.md" && !names[m[1]] {
				t.Errorf("%s names %s, and the source does not", name, m[1])
			}
		}
	}
}

// Each decision record states in its second line whether it is in force, and the index
// shows the same state.
func TestDocsDecisions(t *testing.T) {
	index, err := os.ReadFile("docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no records, %v", err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		title, rest, _ := strings.Cut(string(raw), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(title, "# "), ": ")
		line, _, _ := strings.Cut(rest, "\n")
		state := decisionState.FindString(strings.TrimPrefix(line, "State: "))
		if state == "" || !strings.HasPrefix(line, "State: ") {
			t.Errorf("%s: the second line is %q and not State: in force., superseded by [NNN](...). or withdrawn.", name, line)
			continue
		}
		row := fmt.Sprintf("| [%s](%s) | %s | %s |\n", number, filepath.Base(name), title, state)
		if !strings.Contains(string(index), row) {
			t.Errorf("docs/decisions/README.md lacks the row\n%s", row)
		}
	}
}

var decisionState = regexp.MustCompile(`^(in force|superseded by \[\d{3}\]\([^)]+\)|withdrawn)`)
