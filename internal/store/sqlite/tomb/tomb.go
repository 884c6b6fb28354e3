// Package tomb owns x_erased: what stands for the content of an event that was erased.
// A tomb is the event's key, which was made of the content and by which its turn or
// delivery is known, and a proof over the link of the chain, the key and what is there
// now; see thread.TombProof.
//
// The table is made with the first tomb and raises the format of the database, because
// a build that does not know of tombs would call the chain broken. Nothing here is a
// transaction; the caller has one.
package tomb

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// Tomb of one event.
type Tomb struct {
	Key   string
	proof []byte
}

// Set are the tombs of a database by event.
type Set map[int64]Tomb

// Read answers the tombs; none where nothing was ever erased.
func Read(c conn.Conn) (Set, error) {
	var there int
	if err := each(c, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'x_erased'", func(scan func(...any) error) error { return scan(&there) }); err != nil || there == 0 {
		return nil, err
	}
	out := Set{}
	err := each(c, "SELECT event_id, key, proof FROM x_erased", func(scan func(...any) error) error {
		var id int64
		var t Tomb
		err := scan(&id, &t.Key, &t.proof)
		out[id] = t
		return err
	})
	return out, err
}

func each(c conn.Conn, q string, fn func(scan func(...any) error) error) error {
	s, err := c.Prepare(q)
	if err != nil {
		return fmt.Errorf("read what was erased: %w", err)
	}
	defer func() { _ = s.Close() }() // it says again what the statement said
	return s.Each(nil, fn)
}

// Linked tells whether e is what its link says: the event itself, or what was left of
// one that was erased.
func (s Set) Linked(e thread.Event, prev, sum []byte) bool {
	if t, ok := s[e.ID]; ok {
		return bytes.Equal(t.proof, thread.TombProof(e, sum, t.Key))
	}
	got := e.Hash(prev)
	return bytes.Equal(got[:], sum)
}

// Tx is what burying needs of a transaction.
type Tx interface {
	UUID() string
	Exec(q string, args ...any) (int64, error)
	Row(q string, args []any, dest ...any) (bool, error)
	Event(id int64) (thread.Event, bool, error)
}

// Bury replaces the contents of chained events by text and leaves a tomb for each. One
// that was buried before is left as it is.
func Bury(t Tx, ids []int64, text string) error {
	if _, err := t.Exec(schema.Tombs); err != nil {
		return err
	}
	if _, err := t.Exec("UPDATE x_meta SET format = ?", schema.WithTombs); err != nil {
		return err
	}
	for _, id := range ids {
		if err := bury(t, id, text); err != nil {
			return err
		}
	}
	return nil
}

func bury(t Tx, id int64, text string) error {
	var before int
	if _, err := t.Row("SELECT COUNT(*) FROM x_erased WHERE event_id = ?", []any{id}, &before); err != nil || before > 0 {
		return err
	}
	e, ok, err := t.Event(id)
	if err != nil || !ok {
		return err
	}
	var link []byte
	if _, err := t.Row("SELECT sha256 FROM x_chain WHERE event_id = ?", []any{id}, &link); err != nil {
		return err
	}
	key, sent := e.Key(t.UUID()), ""
	if ok, err := t.Row("SELECT key FROM x_delivery WHERE event_id = ?", []any{id}, &sent); err != nil {
		return err
	} else if ok {
		key = sent
	}
	e.Content = text
	if _, err := t.Exec("UPDATE events SET content = ? WHERE id = ?", text, id); err != nil {
		return err
	}
	_, err = t.Exec("INSERT INTO x_erased(event_id, key, proof) VALUES(?,?,?)", id, key, thread.TombProof(e, link, key))
	return err
}

// Sweep writes the database anew, without its free pages, and empties its log: what
// was erased is in no page any more. store.ErrBusy when another program reads, for
// which the old pages are kept.
func Sweep(c conn.Conn) error {
	if err := c.Script("VACUUM"); err != nil {
		return fmt.Errorf("write the database anew: %w", err)
	}
	busy := 0
	err := each(c, "PRAGMA wal_checkpoint(TRUNCATE)", func(scan func(...any) error) error {
		var pages, moved int
		return scan(&busy, &pages, &moved)
	})
	if err == nil && busy != 0 {
		err = fmt.Errorf("empty the log of the database: %w", store.ErrBusy)
	}
	return err
}
