package pool

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

const pushEvent = "INSERT INTO events(source, type, content) VALUES('s', 'message', 'x')"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// marked writes an event, marks, and closes; between is done before the closing.
func marked(t *testing.T, path string, between func()) (fileState, error) {
	t.Helper()
	c, err := conn.Open(path)
	must(t, err)
	must(t, c.Script(pushEvent))
	l, err := markClosed(c, path)
	between()
	must(t, c.Close())
	return l, err
}

// foreignWrite writes as another program does.
func foreignWrite(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	_, err = db.ExecContext(t.Context(), pushEvent)
	must(t, errors.Join(err, db.Close()))
}

// A closed database is as it was left until somebody writes, however soon that is and
// although it leaves no log.
func TestFileState(t *testing.T) {
	dir := t.TempDir()
	_, err := schema.Create(dir)
	must(t, err)
	path := filepath.Join(dir, "events.db")
	head := int64(0)
	for round := range 20 {
		l, err := marked(t, path, func() {})
		head++
		if err != nil || !l.holds() || l.Head != head || l.LastAt == "" || time.Since(l.Written) > time.Minute {
			t.Fatalf("round %d: %+v, %v", round, l, err)
		}
		foreignWrite(t, path)
		if head++; l.holds() {
			t.Fatalf("round %d: another program wrote, and it is as it was", round)
		}
		// After the mark, before the closing.
		l, err = marked(t, path, func() { foreignWrite(t, path) })
		if head += 2; err != nil || l.holds() {
			t.Fatalf("round %d: another program wrote between, and it is as it was: %v", round, err)
		}
	}
}

// Who reads meanwhile keeps the log, and nothing is said.
func TestFileStateWithReader(t *testing.T) {
	dir := t.TempDir()
	_, err := schema.Create(dir)
	must(t, err)
	path := filepath.Join(dir, "events.db")
	reader, err := conn.Open(path)
	must(t, err)
	must(t, reader.Script(pushEvent+"; BEGIN; SELECT * FROM events"))
	if l, err := marked(t, path, func() {}); !errors.Is(err, store.ErrBusy) || l.holds() {
		t.Errorf("beside a reader: %+v, %v", l, err)
	}
	must(t, reader.Close())
}
