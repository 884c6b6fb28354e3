package rest_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/rest"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

const push = "INSERT INTO events(source, type, content) VALUES('s', 'message', 'x')"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// marked writes an event, marks, and closes; between is done before the closing.
func marked(t *testing.T, path string, between func()) (rest.Look, error) {
	t.Helper()
	c, err := conn.Open(path)
	must(t, err)
	must(t, c.Script(push))
	l, err := rest.Mark(c, path)
	between()
	must(t, c.Close())
	return l, err
}

// theirs writes as another program does.
func theirs(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	_, err = db.ExecContext(t.Context(), push)
	must(t, errors.Join(err, db.Close()))
}

// A closed database is as it was left until somebody writes, however soon that is and
// although he leaves no log.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	_, err := schema.Create(dir)
	must(t, err)
	path := filepath.Join(dir, "events.db")
	head := int64(0)
	for round := range 20 {
		l, err := marked(t, path, func() {})
		head++
		if err != nil || !l.Holds() || l.Head != head || l.LastAt == "" || time.Since(l.Written) > time.Minute {
			t.Fatalf("round %d: %+v, %v", round, l, err)
		}
		theirs(t, path)
		if head++; l.Holds() {
			t.Fatalf("round %d: another program wrote, and it is as it was", round)
		}
		// After the mark, before the closing.
		l, err = marked(t, path, func() { theirs(t, path) })
		if head += 2; err != nil || l.Holds() {
			t.Fatalf("round %d: another program wrote between, and it is as it was: %v", round, err)
		}
	}
}

// Who reads meanwhile keeps the log, and nothing is said.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	_, err := schema.Create(dir)
	must(t, err)
	path := filepath.Join(dir, "events.db")
	reader, err := conn.Open(path)
	must(t, err)
	must(t, reader.Script(push+"; BEGIN; SELECT * FROM events"))
	if l, err := marked(t, path, func() {}); !errors.Is(err, store.ErrBusy) || l.Holds() {
		t.Errorf("beside a reader: %+v, %v", l, err)
	}
	must(t, reader.Close())
}
