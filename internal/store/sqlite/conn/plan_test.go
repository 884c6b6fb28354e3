package conn

import (
	"path/filepath"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// A statement is compiled once, whatever its arguments are: a new LIMIT used to
// compile it again at each use, which was a tenth of what a message costs.
func TestArgumentsDoNotCompileAgain(t *testing.T) {
	dir := t.TempDir()
	if _, err := schema.Create(dir); err != nil {
		t.Fatal(err)
	}
	c, err := Open(filepath.Join(dir, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Prepare("SELECT id FROM events WHERE id > ? AND type = ? ORDER BY id LIMIT ?")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if err := s.Each([]any{n, "message", n}, func(func(...any) error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	own := s.(*stmt)
	own.c.enter()
	defer own.c.leave()
	if n := sqlite3.Xsqlite3_stmt_status(own.c.tls, own.p, sqlite3.SQLITE_STMTSTATUS_REPREPARE, 0); n != 0 {
		t.Errorf("compiled %d times more", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
