package db

import (
	"github.com/theclaw/agents/internal/store/sqlite/chain"
	"github.com/theclaw/agents/internal/thread"
)

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
		t.d.chain = chain.Head{ID: e.ID, Hash: sum[:]}
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

// verifyTail checks the end of the chain, from which the next link goes on.
func (d *DB) verifyTail() error {
	buried, err := d.tombs()
	if err != nil {
		return err
	}
	d.chain, err = chain.VerifyTail(d.conn, buried)
	return err
}

// VerifyChain is chain.Verify of this thread.
func (t *Tx) VerifyChain() (int64, error) {
	buried, err := t.d.tombs()
	if err != nil {
		return 0, err
	}
	return chain.Verify(t, buried)
}
