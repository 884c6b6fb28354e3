package agents_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
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
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
)

// specPages are the pages of docs/spec that people write, without .md.
var specPages = strings.Fields("reliability security contracts")

var (
	limitRow    = regexp.MustCompile("(?m)^\\| [^|\n]+ \\| ([^|\n]+) \\| `([^`|\n]+)` \\|$")
	specRow     = regexp.MustCompile(`(?m)^\| ([A-Z]\d*) \|`)
	specSection = regexp.MustCompile(`(?m)^##+ (\d+(?:\.\d+)?)\.? `)
	invariantID = regexp.MustCompile(`\bI\d+\b`)
)

func specText(t *testing.T, page string) string {
	t.Helper()
	raw, err := os.ReadFile("docs/spec/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// rowsOf are the ids of the rows of a page, and sectionsOf the numbers of its sections.
func rowsOf(text string) (ids []string) {
	for _, m := range specRow.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

func sectionsOf(text string) (ids []string) {
	for _, m := range specSection.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// TestSpecRows compares the ids of the specification's rows and sections with their copy in
// testdata/spec/ids.txt and with the code: T and D are the failpoints, I the invariants that
// are checked, S the targets of the Makefile.
func TestSpecRows(t *testing.T) {
	raw, err := os.ReadFile("testdata/spec/ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	copied := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		copied[words[0]] = words[1:]
	}
	of := map[string][]string{}
	for _, page := range specPages {
		text := specText(t, page)
		ids := rowsOf(text)
		if page == "contracts" {
			ids = sectionsOf(text)
		}
		if !slices.Equal(ids, copied[page]) {
			t.Errorf("docs/spec/%s.md has the rows\n%v, and testdata/spec/ids.txt\n%v", page, ids, copied[page])
		}
		for _, id := range ids {
			of[id[:1]] = append(of[id[:1]], id)
		}
	}
	if steps := slices.Concat(of["T"], of["D"]); !slices.Equal(steps, fault.Steps) {
		t.Errorf("the steps are %v, the failpoints %v", steps, fault.Steps)
	}
	for _, r := range packages(t) {
		if r.dir != "internal/invariant" {
			continue
		}
		checked := map[string]bool{}
		for _, f := range r.files {
			if !f.test && path.Base(f.name) == "doc.go" {
				for _, id := range invariantID.FindAllString(f.ast.Doc.Text(), -1) {
					checked[id] = true
				}
			}
		}
		listed := map[string]bool{}
		for _, id := range of["I"] {
			listed[id] = true
		}
		if !maps.Equal(listed, checked) {
			t.Errorf("the invariants are %v, those of %s %v", of["I"], r.dir, slices.Sorted(maps.Keys(checked)))
		}
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if phony := ".PHONY: " + strings.ToLower(strings.Join(of["S"], " ")) + "\n"; !strings.Contains(string(makefile), phony) {
		t.Errorf("the Makefile lacks %q", phony)
	}
}

// TestSpecLimits compares each limit of the specification with the code, and with its copy in
// testdata/spec/limits.txt. A limit is a constant (DIRECTORY.name), the default of a field
// (DIRECTORY.Config.Field), or the default of a setting.
func TestSpecLimits(t *testing.T) {
	raw, err := os.ReadFile("testdata/spec/limits.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := packages(t)
	var listed strings.Builder
	for _, page := range specPages {
		for _, m := range limitRow.FindAllStringSubmatch(specText(t, page), -1) {
			text, name := m[1], m[2]
			fmt.Fprintf(&listed, "%s\t%s\t%s\n", page, name, text)
			want := limitValue(text)
			if got, err := codeValue(all, name); err != nil || got != want {
				t.Errorf("docs/spec/%s.md: %s is %s (%v), in the code %v, %v", page, name, text, want, got, err)
			}
		}
	}
	if listed.String() != string(raw) {
		t.Errorf("the limits of the pages are\n%s\nand testdata/spec/limits.txt has\n%s", listed.String(), raw)
	}
}

// limitUnits are the units of the pages: durations in ns, sizes in bytes.
var limitUnits = map[string]int64{
	"": 1, "%": 1, "ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour),
	"KiB": 1 << 10, "MiB": 1 << 20,
}

// limitValue reads a limit of a page, such as 10,000 or 64 MiB. What is no number is a text.
func limitValue(text string) any {
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	factor, ok := limitUnits[unit]
	if err != nil || !ok {
		return text
	}
	return n * factor
}

// codeValue is the value of a limit in the code.
func codeValue(all []*goPackage, name string) (any, error) {
	slash := strings.LastIndex(name, "/")
	if slash < 0 {
		return settingValue(name)
	}
	dir, rest, _ := strings.Cut(name[slash:], ".")
	dir = name[:slash] + dir
	i := slices.IndexFunc(all, func(r *goPackage) bool { return r.dir == dir })
	if i < 0 {
		return nil, fmt.Errorf("there is no package %s", dir)
	}
	consts, defaults := map[string]ast.Expr{}, map[string]ast.Expr{}
	for _, f := range all[i].files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, s := range n.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && n.Tok == token.CONST && len(v.Names) == len(v.Values) {
						for i, id := range v.Names {
							consts[id.Name] = v.Values[i]
						}
					}
				}
			case *ast.CallExpr: // set(&c.Field, value)
				if len(n.Args) != 2 {
					break
				}
				if to, ok := n.Args[0].(*ast.UnaryExpr); ok && to.Op == token.AND {
					if field, ok := strings.CutPrefix(text(to.X), "c."); ok {
						defaults[field] = n.Args[1]
					}
				}
			}
			return true
		})
	}
	values := consts
	if field, ok := strings.CutPrefix(rest, "Config."); ok {
		values, rest = defaults, field
	}
	e, ok := values[rest]
	if !ok {
		return nil, fmt.Errorf("%s has no %s", dir, rest)
	}
	v, err := evaluate(e, consts)
	if err != nil {
		return nil, err
	}
	if v.Kind() == constant.String {
		return constant.StringVal(v), nil
	}
	n, exact := constant.Int64Val(constant.ToInt(v))
	if !exact {
		return nil, fmt.Errorf("%s is %s", rest, v)
	}
	return n, nil
}

// settingValue is the default of a setting: a number, a duration or a text.
func settingValue(key string) (any, error) {
	found := config.Explain(key)
	if len(found) != 1 {
		return nil, fmt.Errorf("there is no setting %s", key)
	}
	if d, err := time.ParseDuration(found[0].Default); err == nil {
		return int64(d), nil
	}
	if n, err := strconv.ParseInt(found[0].Default, 10, 64); err == nil {
		return n, nil
	}
	return found[0].Default, nil
}

// evaluate is the value of a constant expression of one package and package time.
func evaluate(e ast.Expr, consts map[string]ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return evaluate(e.X, consts)
	case *ast.Ident:
		if of, ok := consts[e.Name]; ok {
			return evaluate(of, consts)
		}
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"time.Millisecond": time.Millisecond, "time.Second": time.Second, "time.Minute": time.Minute, "time.Hour": time.Hour}
		if d, ok := units[text(e)]; ok {
			return constant.MakeInt64(int64(d)), nil
		}
	case *ast.BinaryExpr:
		x, err := evaluate(e.X, consts)
		if err != nil {
			return nil, err
		}
		y, err := evaluate(e.Y, consts)
		if err != nil {
			return nil, err
		}
		if e.Op == token.SHL {
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(n)), nil
		}
		return constant.BinaryOp(x, e.Op, y), nil
	}
	return nil, fmt.Errorf("%s is no constant expression that this test reads", text(e))
}

// What the test above reads of a page and of the code.
func TestSpecReading(t *testing.T) {
	for text, want := range map[string]any{"10,000": int64(10000), "64 MiB": int64(64 << 20), "10 min": int64(10 * time.Minute), "10 %": int64(10), "required": "required"} {
		if got := limitValue(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	all := packages(t)
	for _, bad := range []string{"internal/lease.Nothing", "internal/nothing.X", "no.setting", "services/registry.Config.Nothing"} {
		if v, err := codeValue(all, bad); err == nil {
			t.Errorf("%s is %v", bad, v)
		}
	}
	var got []string
	for _, c := range citations("RELIABILITY 2, 4 and 10, RELIABILITY section 5; CONTRACTS 1.4, 2.2 to 2.4; SECURITY S8, S0-61, RELIABILITY T5, " +
		"SECURITY \"a b\" and the row of SECURITY; DESIGN 5.2, see docs/x.md, OTHER.md and IDENTITY.md. API 3") {
		got = append(got, c.page+":"+c.place)
	}
	want := "RELIABILITY:2 RELIABILITY:4 RELIABILITY:10 RELIABILITY:5 CONTRACTS:1.4 CONTRACTS:2.2 CONTRACTS:2.4 SECURITY:S8 RELIABILITY:T5 SECURITY:\"a b\" DESIGN:5.2 API:3 docs/x.md: OTHER.md:"
	if strings.Join(got, " ") != want {
		t.Errorf("citations\n%s, want\n%s", strings.Join(got, " "), want)
	}
}

// A citation names a page, and a section, a row or a phrase of it.
type citation struct{ page, place string }

var (
	// A page of a specification by its title, with what follows.
	citedTitle = regexp.MustCompile(`\b(RELIABILITY|SECURITY|CONTRACTS|DESIGN|STYLE|PERFORMANCE|CORE|GATEWAY|TOOLS|MODELS|PLANS|EXTEND|EVALS|DEPENDENCIES|MEMORY|API)(?: sections?)? ((?:\d+(?:\.\d+)*|[A-Z]\d+)\b(?:(?:, and |, | and | to )(?:\d+(?:\.\d+)*|[A-Z]\d+)\b)*|"[^"]+")`)
	citedPlace = regexp.MustCompile(`"[^"]+"|[A-Z]?\d+(?:\.\d+)*`)
	// A page by its path, or by a name in capitals.
	citedPath = regexp.MustCompile(`(?:^|[^\w/.$~<{%*-])((?:bench|cmd|deploy|docs|examples|internal|proofs|proto|services|tools)/[\w./-]*\w|[A-Z]{3,}[A-Z.-]*\.md)\b`)
	// Files of an agent or of an installation, which are no pages of this repository.
	notPages = strings.Fields("IDENTITY.md USAGE.md MEMORY.md SKILL.md AGENTS.md SOUL.md TOOLS.md USER.md HEARTBEAT.md BOOTSTRAP.md")
)

// citations are those of a text whose lines were joined.
func citations(text string) (out []citation) {
	text = anyRow.ReplaceAllString(strings.Join(strings.Fields(text), " "), "") // S0-61 is no row S0
	for _, m := range citedTitle.FindAllStringSubmatch(text, -1) {
		for _, place := range citedPlace.FindAllString(m[2], -1) {
			out = append(out, citation{m[1], place})
		}
	}
	for _, m := range citedPath.FindAllStringSubmatch(text, -1) {
		page := strings.HasSuffix(m[1], ".md") || strings.HasPrefix(m[1], "docs/")
		if page && !slices.Contains(notPages, m[1]) {
			out = append(out, citation{m[1], ""})
		}
	}
	return out
}

// TestDocsCitations checks that each page that a comment, a page or a script cites exists,
// and the cited section, row or phrase of the specification with it. In Go files comments
// are read, in other text files everything.
func TestDocsCitations(t *testing.T) {
	pagesOf := map[string]string{}
	for _, page := range specPages {
		pagesOf[strings.ToUpper(page)] = specText(t, page)
	}
	checked := 0
	check := func(where, text string) {
		for _, c := range citations(text) {
			checked++
			page, is := pagesOf[c.page]
			switch {
			case c.place == "":
				if !pageExists(where, c.page) {
					t.Errorf("%s cites %s, which does not exist", where, c.page)
				}
			case !is:
				t.Errorf("%s cites %s %s: there is no such page", where, c.page, c.place)
			case strings.HasPrefix(c.place, `"`):
				if !strings.Contains(strings.ToLower(page), strings.ToLower(strings.Trim(c.place, `"`))) {
					t.Errorf("%s cites %s %s, which the page does not contain", where, c.page, c.place)
				}
			case !slices.Contains(slices.Concat(rowsOf(page), sectionsOf(page)), c.place):
				t.Errorf("%s cites %s %s, which the page does not have", where, c.page, c.place)
			}
		}
	}
	for _, r := range packages(t) {
		if r.dir == "." {
			continue
		}
		for _, f := range r.files {
			for _, c := range f.ast.Comments {
				check(f.name, c.Text())
			}
		}
	}
	texts := append(pages(t), "Makefile", ".ci/run")
	for _, root := range []string{"cmd", "deploy", "examples", "proofs", "proto/theclaw", "services", "internal"} {
		err := fs.WalkDir(os.DirFS("."), root, func(name string, d fs.DirEntry, err error) error {
			ext := path.Ext(name)
			if err == nil && !d.IsDir() && slices.Contains(strings.Fields(".md .txtar .sh .proto .yaml .yml .service .tpl .sql"), ext) {
				texts = append(texts, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(texts))) {
		raw, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		check(name, comment.ReplaceAllString(string(raw), ""))
	}
	if checked < 150 {
		t.Errorf("only %d citations were read", checked)
	}
}

// pageExists reports whether a page is in the repository, relative to it or to the citing
// file. docs/decisions/021 is the record with that number.
func pageExists(where, page string) bool {
	for _, base := range []string{".", path.Dir(where)} {
		for _, pattern := range []string{"", ".md", "-*.md"} {
			if found, err := filepath.Glob(filepath.FromSlash(path.Join(base, page) + pattern)); err == nil && len(found) > 0 {
				return true
			}
		}
	}
	return false
}
