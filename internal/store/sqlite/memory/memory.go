// Package memory stores the progress of each layer of an agent's memory in x_memory, and a
// digest that its file may not hold yet.
//
// A row is keyed by the layer, the name of its file. In a conversation thread
// these are the thread's and its peers' layers, in an inbox the agent's; there the
// rows keyed by a thread id count the digests of that thread and those that the
// agent's layer has seen.
//
// A mark moves by one digest at a time and never back, and a digest made twice is
// committed once. The functions run inside a transaction
// whose caller has checked the fence; files are not its business.
package memory

import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

const columns = "layer, n, digested, seen, base, text, thread, event"

func scanMark(scan func(...any) error) (m store.MemoryMark, err error) {
	err = scan(&m.Layer, &m.N, &m.Digested, &m.Seen, &m.Base, &m.Text, &m.Thread, &m.Event)
	return m, err
}

// Marks answers the marks of layers in their order; one that was never digested
// is all zero but for its name.
func Marks(tx *db.Tx, layers []string) ([]store.MemoryMark, error) {
	out := make([]store.MemoryMark, len(layers))
	for i, layer := range layers {
		m := &out[i]
		if _, err := tx.Row("SELECT "+columns+" FROM x_memory WHERE layer = ?", []any{layer},
			&m.Layer, &m.N, &m.Digested, &m.Seen, &m.Base, &m.Text, &m.Thread, &m.Event); err != nil {
			return nil, err
		}
		m.Layer = layer
	}
	return out, nil
}

// Move commits a digest and answers the mark that stands.
func Move(tx *db.Tx, c store.Compaction) (store.MemoryMark, bool, error) {
	now, err := Marks(tx, []string{c.Mark.Layer})
	if err != nil {
		return store.MemoryMark{}, false, err
	}
	old, m := now[0], c.Mark
	m.N = c.After + 1
	switch {
	case old.N == m.N && old.Digested == m.Digested && old.Base == m.Base:
		return old, false, nil // the answer was lost, not the digest
	case old.N != c.After || old.Digested > m.Digested:
		return old, false, store.ErrMemoryMoved
	}
	_, err = tx.Exec(`INSERT INTO x_memory(`+columns+`) VALUES(?,?,?,?,?,?,?,?) ON CONFLICT(layer) DO UPDATE SET n = excluded.n,
		digested = excluded.digested, seen = excluded.seen, base = excluded.base, text = excluded.text, thread = excluded.thread, event = excluded.event`,
		m.Layer, m.N, m.Digested, m.Seen, m.Base, m.Text, m.Thread, m.Event)
	return m, err == nil, err
}

// Written forgets the text of the nth digest, which its file holds now.
func Written(tx *db.Tx, layer string, n int64) error {
	_, err := tx.Exec("UPDATE x_memory SET text = '', thread = '', event = '' WHERE layer = ? AND n = ?", layer, n)
	return err
}

// Count notes how many digests a thread has.
func Count(tx *db.Tx, thread string, n int64) error {
	_, err := tx.Exec("INSERT INTO x_memory(layer, n) VALUES(?,?) ON CONFLICT(layer) DO UPDATE SET n = MAX(n, excluded.n)", thread, n)
	return err
}

// See notes that the agent's layer has seen digests of threads, and how far it
// read in each.
func See(tx *db.Tx, threads []store.MemoryMark) error {
	for _, t := range threads {
		if _, err := tx.Exec("UPDATE x_memory SET seen = MAX(seen, MIN(n, ?)), digested = MAX(digested, ?) WHERE layer = ?", t.N, t.Digested, t.Layer); err != nil {
			return err
		}
	}
	return nil
}

// Unseen answers threads with digests that the agent's layer has not seen, and
// the number of such digests in all. agent is the agent's own layer.
func Unseen(tx *db.Tx, agent string, limit int) (out []store.MemoryMark, total int64, err error) {
	if _, err := tx.Row("SELECT COALESCE(SUM(n - seen), 0) FROM x_memory WHERE layer <> ? AND n > seen", []any{agent}, &total); err != nil {
		return nil, 0, err
	}
	err = tx.Each("SELECT "+columns+" FROM x_memory WHERE layer <> ? AND n > seen ORDER BY layer LIMIT ?", []any{agent, limit}, func(scan func(...any) error) error {
		m, err := scanMark(scan)
		out = append(out, m)
		return err
	})
	return out, total, err
}
