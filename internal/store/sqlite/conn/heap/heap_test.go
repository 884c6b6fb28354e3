package heap_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/conn/heap"
)

// The engine allocates here, gives everything back when its databases are closed, and goes
// on after what is unused went back to the system.
func TestEngineAllocatesHere(t *testing.T) {
	dir := t.TempDir()
	use := func(n int) {
		t.Helper()
		before := heap.InUse()
		var open []conn.Conn
		for range n {
			f, err := os.CreateTemp(dir, "*.db")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			c, err := conn.Open(filepath.Join(dir, filepath.Base(f.Name())))
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			if err := c.Script("CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(100000)); SELECT length(a) FROM t"); err != nil {
				t.Fatal(err)
			}
			if err := heap.Trim(); err != nil { // with databases open
				t.Fatal(err)
			}
		}
		if got := heap.InUse() - before; got < int64(n)*100_000 {
			t.Errorf("%d databases take %d bytes", n, got)
		}
		for _, c := range open {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if left := heap.InUse() - before; left > 16<<10 {
			t.Errorf("%d bytes are left of %d databases", left, n)
		}
	}
	use(1) // what the engine itself keeps
	use(20)
	use(20)
}
