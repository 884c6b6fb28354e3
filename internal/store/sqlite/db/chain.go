package db

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// chainTail is how many links are verified at open: enough to notice a torn end,
// few enough to cost nothing.
const chainTail = 16

// chainHead is the last link. The zero value is that of an empty chain.
type chainHead struct {
	ID   int64
	Hash []byte
}

// link writes e's row of the chain; a guest leaves that to the owner.
func (t *Tx) link(e thread.Event) error {
	if t.d.opts.Guest {
		return nil
	}
	sum := e.Hash(t.d.chain.Hash)
	prev := t.d.chain.Hash
	if prev == nil {
		prev = []byte{}
	}
	_, err := t.Exec("INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", e.ID, prev, sum[:])
	if err == nil {
		t.d.chain = chainHead{ID: e.ID, Hash: sum[:]}
	}
	return err
}

// ChainForeign links the events that another program appended since our last.
func (t *Tx) ChainForeign() error {
	if t.d.opts.Guest {
		return nil
	}
	head, err := t.Head()
	if err != nil || head <= t.d.chain.ID {
		return err
	}
	return t.Events("SELECT "+Columns+" FROM events WHERE id > ? ORDER BY id", []any{t.d.chain.ID}, t.link)
}

// verifyTail checks the last links, and sets where the chain continues.
func (d *DB) verifyTail() error {
	erased, err := d.tombstones()
	if err != nil {
		return err
	}
	s, err := d.conn.Prepare(`SELECT c.event_id, c.prev, c.sha256, e.id, e.created_at, e.source, e.type, e.subtype, e.content
		FROM x_chain c LEFT JOIN events e ON e.id = c.event_id ORDER BY c.event_id DESC LIMIT ?`)
	if err != nil {
		return fmt.Errorf("read chain: %w", err)
	}
	defer func() { _ = s.Close() }() // repeats the error of the statement
	var head chainHead
	var wantHash []byte
	first := true
	err = s.Each([]any{chainTail}, func(scan func(...any) error) error {
		var id int64
		var prev, sum []byte
		var eid *int64
		var at, source, typ, subtype, content *string
		if err := scan(&id, &prev, &sum, &eid, &at, &source, &typ, &subtype, &content); err != nil {
			return err
		}
		if eid == nil || at == nil || source == nil || typ == nil || content == nil {
			return fmt.Errorf("event %d is in the chain and gone: %w", id, store.ErrCorrupt)
		}
		e := thread.Event{ID: *eid, CreatedAt: *at, Source: *source, Type: *typ, Subtype: subtype, Content: *content}
		if !erased.linked(e, prev, sum) || (!first && !bytes.Equal(sum, wantHash)) {
			return fmt.Errorf("event %d does not match its hash: %w", id, store.ErrCorrupt)
		}
		if first {
			head = chainHead{id, sum}
		}
		first, wantHash = false, prev
		return nil
	})
	d.chain = head
	if err != nil {
		return fmt.Errorf("read chain: %w", err)
	}
	return nil
}

// VerifyChain checks that no event was changed, removed or inserted between others
// since it was linked, and returns the number of chained events. The error names the
// first event that does not match (store.ErrCorrupt).
func (t *Tx) VerifyChain() (int64, error) {
	erased, err := t.d.tombstones()
	if err != nil {
		return 0, err
	}
	var n int64
	prev := []byte{}
	err = t.Each(`SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, c.prev, c.sha256
		FROM x_chain c JOIN events e ON e.id = c.event_id ORDER BY c.event_id`, nil, func(scan func(...any) error) error {
		var e thread.Event
		var p, sum []byte
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &p, &sum); err != nil {
			return err
		}
		if !bytes.Equal(p, prev) || !erased.linked(e, p, sum) {
			return fmt.Errorf("event %d does not match its hash: %w", e.ID, store.ErrCorrupt)
		}
		prev = sum
		n++
		return nil
	})
	if err != nil {
		return n, err
	}
	var links int64
	if _, err := t.Row("SELECT COUNT(*) FROM x_chain", nil, &links); err != nil {
		return n, err
	}
	if links != n {
		return n, fmt.Errorf("%d chained events are gone: %w", links-n, store.ErrCorrupt)
	}
	var below int64
	if _, err := t.Row("SELECT COUNT(*) FROM events WHERE id <= (SELECT COALESCE(MAX(event_id), 0) FROM x_chain)", nil, &below); err != nil {
		return n, err
	}
	if below != n {
		return n, fmt.Errorf("%d events were put between chained ones: %w", below-n, store.ErrCorrupt)
	}
	return n, nil
}
