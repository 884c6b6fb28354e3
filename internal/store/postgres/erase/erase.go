// Package erase replaces what one peer sent and received in a shared database: it finds the
// events and turns of a thread that belong to the peer, replaces their contents, and
// verifies that the agent is idle meanwhile.
//
//	lease of the agent (FOR UPDATE), the thread's row, idle?      -- else refused
//	contents, tombstones, origins, journal, errors, title, memory -- one transaction
//
// An erased event keeps everything but its content. Its keys, which identify turns and
// deliveries, stay what they were, and its tombstone is written in the same transaction.
// While the transaction holds the row of the lease nobody can begin to work on the agent,
// at any registry; if somebody already does, it refuses.
//
// Each thread is one transaction. A repetition finishes what a killed registry left, and
// does not change what is erased. No query returns the old rows; the server removes them
// from its pages and its log.
package erase

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// Lock keeps the lease of the agent $1 from changing hands, and Remaining reads what Refuse
// judges by; $2 is any thread that is there.
const (
	Lock      = "SELECT 1 FROM lease WHERE agent_id = $1 AND resource = 'agent/' || $1 FOR UPDATE"
	Remaining = `SELECT COALESCE((SELECT i.desired FROM thread i WHERE i.agent_id = $1 AND i.thread_id = 'inbox'), ''),
		COALESCE((SELECT MIN(l.holder) FROM lease l WHERE l.agent_id = $1 AND l.resource IN ('agent/' || $1, 'deliver/' || $1)
			AND NOT l.released AND l.expires_at > clock_timestamp()), '')
		FROM thread WHERE agent_id = $1 AND thread_id = $2`
)

// Refuse answers why an agent is not at rest; nil when it is.
func Refuse(agent, desired, holder string) error {
	switch {
	case desired == unit.Started:
		return fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+agent+"' is started", "stop it first: agentctl stop "+agent)
	case holder != "":
		return fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+agent+"' is being worked on by "+holder, "wait a moment and repeat it")
	}
	return nil
}

// some is how many events are changed by one statement.
const some = 5000

// ContentsStep replaces the contents of a share and leaves their tombstones.
type ContentsStep struct {
	s               store.PeerShare
	desired, holder string
	ids             []int64 // of those that are not erased yet
	keys            []string
	proofs          [][]byte
}

// Contents is a step, and goes alone with the agent's lease.
func Contents(s store.PeerShare) *ContentsStep { return &ContentsStep{s: s} }

// Load reads the events, one at a time, and makes their tombstones.
func (c *ContentsStep) Load(tx *unit.Tx) {
	tx.One(Remaining, nil, nil, &c.desired, &c.holder)
	tx.Read(`SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, e.sha256, COALESCE(d.key, '') FROM event e
		LEFT JOIN delivery d ON d.agent_id = $1 AND d.thread_id = $2 AND d.event_id = e.id
		WHERE e.agent_id = $1 AND e.thread_id = $2 AND e.id = ANY($3::bigint[]) AND e.erased_proof IS NULL`, []any{c.s.Events}, func(scan func(...any) error) error {
		var e thread.Event
		var link []byte
		var key string
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &link, &key); err != nil {
			return err
		}
		if key == "" {
			key = e.Key(tx.UUID) // the thread's row was read before
		}
		e.Content = store.Erased
		c.ids, c.keys, c.proofs = append(c.ids, e.ID), append(c.keys, key), append(c.proofs, thread.TombstoneProof(e, link, key))
		return nil
	})
}

// Decide queues the writes.
func (c *ContentsStep) Decide(_ context.Context, tx *unit.Tx) error {
	if err := Refuse(tx.Agent, c.desired, c.holder); err != nil {
		return err
	}
	for from := 0; from < len(c.ids); from += some {
		to := min(from+some, len(c.ids))
		tx.Exec(`UPDATE event SET content = $3, erased_key = t.key, erased_proof = t.proof
			FROM unnest($4::bigint[], $5::text[], $6::bytea[]) AS t(id, key, proof)
			WHERE event.agent_id = $1 AND event.thread_id = $2 AND event.id = t.id`, store.Erased, c.ids[from:to], c.keys[from:to], c.proofs[from:to])
	}
	if len(c.s.Turns) > 0 {
		tx.Exec("UPDATE step SET result = NULL, arguments = '', summary = '' WHERE agent_id = $1 AND thread_id = $2 AND turn = ANY($3::text[])", c.s.Turns)
		tx.Exec("UPDATE turn SET error = '', attempts = '', reply_context = '' WHERE agent_id = $1 AND thread_id = $2 AND key = ANY($3::text[])", c.s.Turns)
	}
	if tx.IsInbox() {
		tx.Exec("UPDATE fate SET error = '' WHERE agent_id = $1 AND thread_id = $2 AND inbox_id = ANY($3::bigint[]) AND error <> ''", c.s.Events)
		tx.ExecRaw(`UPDATE origin SET account = '', provider_id = '', command = ''
			FROM unnest($2::bigint[]) AS t(id) WHERE origin.agent_id = $1 AND origin.inbox_id = t.id`, tx.Agent, c.s.Events)
		tx.ExecRaw(`DELETE FROM process USING unnest($2::text[]) AS t(key)
			WHERE process.agent_id = $1 AND starts_with(process.step_key, t.key || ':')`, tx.Agent, c.s.Turns)
	} else {
		tx.Exec("UPDATE delivery SET error = '' WHERE agent_id = $1 AND thread_id = $2 AND event_id = ANY($3::bigint[]) AND error <> ''", c.s.Events)
		if c.s.Whole {
			tx.Exec("UPDATE session SET title = '' WHERE agent_id = $1 AND thread_id = $2 AND title <> ''")
		}
	}
	tx.Exec("UPDATE memory SET text = '', thread = '', event = '' WHERE agent_id = $1 AND thread_id = $2 AND (text <> '' OR event <> '')")
	return nil
}
