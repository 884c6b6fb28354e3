package table_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/bench/table"
)

// A page shows the newest table between its marks and keeps what stands around it, other
// tables too; one without the marks is left alone. A missed goal is printed as missed.
func TestShow(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const other = "<!-- b: from here `make b` writes -->\nother\n<!-- b: end -->\nbelow\n"
	if err := os.WriteFile(page, []byte("above\n<!-- a: from here to the next such line `make a` writes -->\nold\n<!-- a: end -->\n"+other), 0o600); err != nil {
		t.Fatal(err)
	}
	var of table.Table
	of.Share("rate", 60, 100, .5)
	of.Share("low rate", 40, 100, .5)
	of.AtMost("time", 2*time.Millisecond, time.Millisecond)
	of.Within("units", 3*time.Millisecond, 10, "F", 100*time.Microsecond)
	of.Flat("many", 3*time.Second, time.Second, 1.5)
	of.AtLeast("number", 7, 7)
	of.Below("size", 8, 7)
	of.Section("A heading")
	of.Figure("figure", "12")
	of.Notes = []string{"a note"}
	if err := of.Show(page, "a"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if strings.Contains(got, "old") || !strings.HasPrefix(got, "above\n") || !strings.HasSuffix(got, other) {
		t.Errorf("the page is %s", got)
	}
	for _, want := range []string{"60/s = 0.60", "30.0 F", "3.00s, few 1.00s", "\n\nA heading\nfigure ", "a note\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if yes, no := strings.Count(got, " yes\n"), strings.Count(got, " NO\n"); yes != 2 || no != 5 {
		t.Errorf("%d goals are met and %d missed in %s", yes, no, got)
	}
	if of.Show(page, "c") == nil {
		t.Error("a page without the marks took the table")
	}
}
