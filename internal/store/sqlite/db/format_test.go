package db

import (
	"errors"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// format is the format of a database, as it is stored.
func format(t *testing.T, d *DB) (n, tables int) {
	t.Helper()
	must(t, d.View(t.Context(), func(tx *Tx) error {
		if _, err := tx.Row("SELECT format FROM x_meta", nil, &n); err != nil {
			return err
		}
		_, err := tx.Row("SELECT COUNT(*) FROM sqlite_master WHERE name IN ('x_origin','x_sessions','x_session')", nil, &tables)
		if has := tx.HasSessions(); has != (n >= schema.FormatSessions) {
			t.Errorf("format %d, has sessions %v", n, has)
		}
		return err
	}))
	return n, tables
}

// A format is raised by the first row that needs it and by nothing else, in each order, and
// never becomes lower.
func TestFormatRises(t *testing.T) {
	erase := func(tx *Tx) error { return tx.Erase([]int64{1}, store.Erased) }
	for name, c := range map[string]struct {
		steps  []func(*Tx) error
		want   []int
		tables int
	}{
		"events alone":           {[]func(*Tx) error{insert("2")}, []int{1}, 0},
		"an origin":              {[]func(*Tx) error{(*Tx).MakeOrigins, (*Tx).MakeOrigins}, []int{3, 3}, 2},
		"a session":              {[]func(*Tx) error{(*Tx).MakeSession, insert("2")}, []int{3, 3}, 1},
		"an origin, erased":      {[]func(*Tx) error{(*Tx).MakeOrigins, erase, erase}, []int{3, 3, 3}, 2},
		"external":               {[]func(*Tx) error{(*Tx).MarkExternal, (*Tx).MarkExternal}, []int{5, 5}, 1},
		"external, then others":  {[]func(*Tx) error{(*Tx).MarkExternal, (*Tx).MakeSession, erase}, []int{5, 5, 5}, 1},
		"a session, external":    {[]func(*Tx) error{(*Tx).MakeSession, (*Tx).MarkExternal}, []int{3, 5}, 1},
		"erased, then an origin": {[]func(*Tx) error{erase, (*Tx).MakeOrigins, erase}, []int{2, 3, 3}, 2},
	} {
		dir := fresh(t)
		d, err := Open(t.Context(), dir, Options{})
		must(t, err)
		must(t, d.Do(t.Context(), true, insert("1")))
		for i, step := range c.steps {
			must(t, d.Do(t.Context(), true, step))
			if got, _ := format(t, d); got != c.want[i] {
				t.Errorf("%s: format %d after step %d, want %d", name, got, i, c.want[i])
			}
			must(t, d.Close())
			d, err = Open(t.Context(), dir, Options{}) // killed here: what was committed stands
			must(t, err)
		}
		if got, tables := format(t, d); got != c.want[len(c.want)-1] || tables != c.tables {
			t.Errorf("%s: format %d with %d tables after it is opened, want %d with %d", name, got, tables, c.want[len(c.want)-1], c.tables)
		}
		if _, err := verify(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, d.Close())
	}
}

// A format that was raised in a transaction that is undone was not raised: the next
// operation does not read tables that are not there.
func TestFormatIsUndone(t *testing.T) {
	d := open(t, fresh(t), Options{})
	why := errors.New("why")
	raise := func(tx *Tx) error { return errors.Join(tx.MakeOrigins(), why) }
	unchanged := func(what string) {
		t.Helper()
		if n, tables := format(t, d); n != schema.Format || tables != 0 {
			t.Errorf("%s: format %d with %d tables", what, n, tables)
		}
	}
	if err := d.Do(t.Context(), true, raise); !errors.Is(err, why) {
		t.Fatal(err)
	}
	unchanged("alone")
	ops := []*op{{fn: insert("1")}, {fn: raise}, {fn: func(tx *Tx) error {
		if tx.HasSessions() {
			t.Error("the operation behind one that was undone has its tables")
		}
		return nil
	}}}
	must(t, d.Alone(t.Context(), func(conn.Conn) error { d.runGroup(ops); return nil }))
	if ops[0].err != nil || !errors.Is(ops[1].err, why) || ops[2].err != nil {
		t.Errorf("errors %v, %v, %v", ops[0].err, ops[1].err, ops[2].err)
	}
	unchanged("in company")
	must(t, d.Do(t.Context(), true, (*Tx).MakeOrigins))
	if n, tables := format(t, d); n != schema.FormatSessions || tables != 2 {
		t.Errorf("format %d with %d tables", n, tables)
	}
}
