package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/bench/postgres/report"
)

// A page shows the newest table between its marks and keeps what stands around it; one
// without marks is left alone.
func TestShow(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("above\n"+
		"<!-- bench-postgres: from here to the next such line `make bench-postgres` writes -->\nold\n<!-- bench-postgres: end -->\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var table report.Table
	table.AtLeast("rate", 60, 100, .5)
	table.AtMost("time", 2*time.Millisecond, time.Millisecond, 100*time.Microsecond, 10)
	table.Flat("many", 3*time.Second, time.Second, 1.5)
	if err := table.Show(page); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if strings.Contains(got, "old") || !strings.HasPrefix(got, "above\n") || !strings.HasSuffix(got, "below\n") {
		t.Errorf("the page is %s", got)
	}
	for _, want := range []string{"0.60", "yes", "20.0 F", "3.00"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if n := strings.Count(got, " NO\n"); n != 2 {
		t.Errorf("%d goals are missed in %s", n, got)
	}
	if err := os.WriteFile(page, []byte("no marks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if table.Show(page) == nil {
		t.Error("a page without marks took the table")
	}
}
