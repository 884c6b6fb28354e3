package db

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/chain"
	"github.com/theclaw/agents/internal/thread"
)

// tail is how many links are verified at open: enough to notice a torn end,
// few enough to cost nothing.
const tail = 16

type chainHead struct {
	id   int64
	hash []byte
}

// link writes e's row of the chain; a guest leaves that to the owner.
func (t *Tx) link(e thread.Event) error {
	if t.d.opts.Guest {
		return nil
	}
	sum := e.Hash(t.d.chain.hash)
	prev := t.d.chain.hash
	if prev == nil {
		prev = []byte{}
	}
	_, err := t.Exec("INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", e.ID, prev, sum[:])
	if err == nil {
		t.d.chain = chainHead{e.ID, sum[:]}
	}
	return err
}

// chainForeign links the events that another program appended since our last.
func (t *Tx) chainForeign() error {
	if t.d.opts.Guest {
		return nil
	}
	head, err := t.Head()
	if err != nil || head <= t.d.chain.id {
		return err
	}
	return t.Events("SELECT "+Columns+" FROM events WHERE id > ? ORDER BY id", []any{t.d.chain.id}, t.link)
}

// ChainForeign links what other programs appended; for reads that must trust
// the chain.
func (t *Tx) ChainForeign() error { return t.chainForeign() }

func (d *DB) verifyTail() error {
	s, err := d.conn.Prepare(`SELECT c.event_id, c.prev, c.sha256, e.id, e.created_at, e.source, e.type, e.subtype, e.content
		FROM x_chain c LEFT JOIN events e ON e.id = c.event_id ORDER BY c.event_id DESC LIMIT ?`)
	if err != nil {
		return fmt.Errorf("read chain: %w", err)
	}
	defer func() { _ = s.Close() }() // it says again what the statement said
	buried, err := d.tombs()
	if err != nil {
		return err
	}
	var wantHash []byte
	first := true
	err = s.Each([]any{tail}, func(scan func(...any) error) error {
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
		if !buried.Linked(e, prev, sum) || (!first && !bytes.Equal(sum, wantHash)) {
			return fmt.Errorf("event %d does not match its hash: %w", id, store.ErrCorrupt)
		}
		if first {
			d.chain = chainHead{id, sum}
		}
		first, wantHash = false, prev
		return nil
	})
	if err != nil {
		return fmt.Errorf("read chain: %w", err)
	}
	return nil
}

// VerifyChain is chain.Verify of this thread.
func (t *Tx) VerifyChain() (int64, error) {
	buried, err := t.d.tombs()
	if err != nil {
		return 0, err
	}
	return chain.Verify(t, buried)
}
