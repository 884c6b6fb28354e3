package db

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/store"
)

// flips are single bit flips in each column of an event and of its link.
var flips = []string{
	"UPDATE events SET created_at = replace(created_at, 'T', 'U') WHERE id = %d",
	"UPDATE events SET source = 'r' WHERE id = %d",
	"UPDATE events SET type = 'lessage' WHERE id = %d",
	"UPDATE events SET subtype = '' WHERE id = %d",
	"UPDATE events SET content = content || 'x' WHERE id = %d",
	"UPDATE events SET id = id + 1024 WHERE id = %d",
	"DELETE FROM events WHERE id = %d",
	"UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = %d",
	"UPDATE x_chain SET prev = zeroblob(32) WHERE event_id = %d",
	"UPDATE x_chain SET event_id = event_id + 1024 WHERE event_id = %d",
}

// I17: the tail is verified at open, everything on demand.
func TestChainFindsEveryFlip(t *testing.T) {
	const events = 20
	dir := fresh(t)
	d := open(t, dir, Options{})
	for i := range events {
		must(t, d.Do(t.Context(), false, insert(fmt.Sprint(i))))
	}
	must(t, d.Close())
	f := foreign(t, dir)
	for _, flip := range flips {
		for id := 1; id <= events; id++ {
			// In a copy of the rows: each flip is undone before the next.
			_, err := f.Exec("CREATE TABLE e AS SELECT * FROM events; CREATE TABLE c AS SELECT * FROM x_chain; " + fmt.Sprintf(flip, id))
			must(t, err)
			d, err := Open(t.Context(), dir, Options{})
			inTail := id > events-chainTail
			if inTail && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: opened: %v", fmt.Sprintf(flip, id), err)
			}
			if err == nil {
				if _, err := verify(d); !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("%s: verified: %v", fmt.Sprintf(flip, id), err)
				}
				must(t, d.Close())
			}
			_, err = f.Exec("DELETE FROM events; DELETE FROM x_chain; INSERT INTO events SELECT * FROM e; INSERT INTO x_chain SELECT * FROM c; DROP TABLE e; DROP TABLE c")
			must(t, err)
		}
	}
	if n, err := verify(open(t, dir, Options{})); err != nil || n != events {
		t.Errorf("whole again: %d, %v", n, err)
	}
	_, err := f.Exec("DELETE FROM events WHERE id = 2; DELETE FROM x_chain WHERE event_id = 2")
	must(t, err)
	if _, err := verify(open(t, dir, Options{})); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("an event cut out with its link: %v", err)
	}
}

func TestChainTakesForeignEvents(t *testing.T) {
	dir := fresh(t)
	d, f := open(t, dir, Options{}), foreign(t, dir)
	push := func() {
		_, err := f.Exec("INSERT INTO events(source, type, content) VALUES('s','message','foreign')")
		must(t, err)
	}
	push()
	must(t, d.Do(t.Context(), true, insert("1")))
	push()
	push()
	// An operation that fails takes its links with it.
	if err := d.Do(t.Context(), true, func(tx *Tx) error { _ = insert("x")(tx); return errors.New("no") }); err == nil {
		t.Fatal("no error")
	}
	must(t, d.Do(t.Context(), true, insert("2")))
	if n, err := verify(d); err != nil || n != 5 {
		t.Errorf("chain of %d: %v", n, err)
	}
	push()
	if n, err := verify(d); err != nil || n != 5 {
		t.Errorf("with an unchained end: %d, %v", n, err)
	}
	must(t, d.Do(t.Context(), false, func(tx *Tx) error { return tx.ChainForeign() }))
	if n, err := verify(d); err != nil || n != 6 {
		t.Errorf("chained on demand: %d, %v", n, err)
	}
	_, err := f.Exec("UPDATE sqlite_sequence SET seq = 100; INSERT INTO events(source, type, content) VALUES('s','message','far')")
	must(t, err)
	must(t, d.Do(t.Context(), true, insert("3")))
	_, err = f.Exec("INSERT INTO events(id, source, type, content) VALUES(50,'s','message','between')")
	must(t, err)
	if _, err := verify(d); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("an event put between: %v", err)
	}
	if bytes.Equal(d.chain.Hash, nil) {
		t.Error("no head")
	}
}
