// Package chain owns what the hash chain of an events.db promises: that no event was
// changed, taken away or put between others since it was linked. It reads only.
package chain

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/store/sqlite/tomb"
	"github.com/theclaw/agents/internal/thread"
)

// Queries is a transaction that reads.
type Queries interface {
	Each(sql string, args []any, fn func(scan func(...any) error) error) error
	Row(sql string, args []any, dest ...any) (found bool, err error)
}

// Tail is how many links are verified at open: enough to notice a torn end,
// few enough to cost nothing.
const Tail = 16

// Head is the last link. The zero value is that of an empty chain.
type Head struct {
	ID   int64
	Hash []byte
}

// VerifyTail checks the last links, and answers where the chain goes on.
func VerifyTail(c conn.Conn, buried tomb.Set) (head Head, err error) {
	s, err := c.Prepare(`SELECT c.event_id, c.prev, c.sha256, e.id, e.created_at, e.source, e.type, e.subtype, e.content
		FROM x_chain c LEFT JOIN events e ON e.id = c.event_id ORDER BY c.event_id DESC LIMIT ?`)
	if err != nil {
		return head, fmt.Errorf("read chain: %w", err)
	}
	defer func() { _ = s.Close() }() // it says again what the statement said
	var wantHash []byte
	first := true
	err = s.Each([]any{Tail}, func(scan func(...any) error) error {
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
			head = Head{id, sum}
		}
		first, wantHash = false, prev
		return nil
	})
	if err != nil {
		return head, fmt.Errorf("read chain: %w", err)
	}
	return head, nil
}

// Verify checks every link and answers the number of chained events; the
// first that does not match is named in the error (store.ErrCorrupt).
func Verify(q Queries, buried tomb.Set) (int64, error) {
	var n int64
	prev := []byte{}
	err := q.Each(`SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, c.prev, c.sha256
		FROM x_chain c JOIN events e ON e.id = c.event_id ORDER BY c.event_id`, nil, func(scan func(...any) error) error {
		var e thread.Event
		var p, sum []byte
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &p, &sum); err != nil {
			return err
		}
		if !bytes.Equal(p, prev) || !buried.Linked(e, p, sum) {
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
	if _, err := q.Row("SELECT COUNT(*) FROM x_chain", nil, &links); err != nil {
		return n, err
	}
	if links != n {
		return n, fmt.Errorf("%d chained events are gone: %w", links-n, store.ErrCorrupt)
	}
	var below int64
	if _, err := q.Row("SELECT COUNT(*) FROM events WHERE id <= (SELECT COALESCE(MAX(event_id), 0) FROM x_chain)", nil, &below); err != nil {
		return n, err
	}
	if below != n {
		return n, fmt.Errorf("%d events were put between chained ones: %w", below-n, store.ErrCorrupt)
	}
	return n, nil
}
