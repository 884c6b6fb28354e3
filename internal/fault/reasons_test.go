package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReasonsAreDocumented holds the constants of reasons.go and the rows of
// docs/errors.md equal.
func TestReasonsAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil || constants[s] {
				t.Errorf("reason %q: twice or not a string (%v)", s, err)
			}
			constants[s] = true
		}
		return true
	})

	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| [A-Z_]+ \\| [^|]+ \\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		if rows[m[1]] {
			t.Errorf("row %s stands twice", m[1])
		}
		rows[m[1]] = true
	}
	want, got := slices.Sorted(maps.Keys(constants)), slices.Sorted(maps.Keys(rows))
	if d := cmp.Diff(want, got); d != "" || len(want) < 40 {
		t.Errorf("reasons.go and docs/errors.md differ (-constants +rows):\n%s", d)
	}
}
