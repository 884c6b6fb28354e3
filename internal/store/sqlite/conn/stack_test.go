package conn

import (
	"os"
	"path/filepath"
	"testing"
)

// Connections that are used in turn run on one stack, also with a statement that runs inside of
// another one's rows; Trim gives it up, and the connections go on.
func TestStacksAreShared(t *testing.T) {
	dropStacks()
	var open []*native
	for i := range 40 {
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Script("CREATE TABLE t(a); INSERT INTO t VALUES(1),(2),(3)"); err != nil {
			t.Fatal(i, err)
		}
		open = append(open, c.(*native))
	}
	sums := func() {
		t.Helper()
		for _, c := range open {
			outer, err := c.Prepare("SELECT a FROM t")
			if err != nil {
				t.Fatal(err)
			}
			inner, err := c.Prepare("SELECT SUM(a) FROM t WHERE a <= ?")
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			if err := outer.Each(nil, func(scan func(...any) error) error {
				var a, sum int
				if err := scan(&a); err != nil {
					return err
				}
				_, err := inner.Row([]any{a}, []any{&sum})
				total += sum
				return err
			}); err != nil || total != 1+3+6 {
				t.Fatal(total, err)
			}
			if err := inner.Close(); err != nil {
				t.Fatal(err)
			}
			if err := outer.Close(); err != nil {
				t.Fatal(err)
			}
			if c.tls != nil || c.depth != 0 {
				t.Fatal("a connection that is not used has a stack")
			}
		}
	}
	sums()
	if n := len(stacks.list); n != 1 {
		t.Errorf("%d connections that were used in turn have %d stacks", len(open), n)
	}
	if err := Trim(); err != nil || len(stacks.list) != 0 {
		t.Fatal(len(stacks.list), err)
	}
	sums()
}
