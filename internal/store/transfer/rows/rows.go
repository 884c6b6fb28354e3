// Package rows defines the form in which an agent moves between storage engines: the kinds
// of rows, their order, the meaning of their columns, and the digest of all.
//
//	agent_file ...  then for each thread, the inbox first:
//	thread, event ..., subscription ..., progress ..., dedupe ..., and so on
//
// A digest is over every value of every row in this order, each with its kind and its
// length in front; so it is the same for two engines that hold the same, and for no
// others. It checks the hash chain of each thread on the way. It reads and writes nothing.
package rows

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Row is one row of an agent.
type Row struct {
	Thread string // of which thread it is; empty: of the agent itself
	Table  *Table
	Values []any // int64, string, []byte, or nil for NULL, as the columns say
}

// Table is a kind of row: one table in the database that is shared, and what holds the
// same on one machine.
type Table struct {
	Name    string
	Columns []Column
	Order   string // of the rows, in both
	Inbox   bool   // an inbox alone has such rows
	Agent   bool   // the shared table is of the agent: it has no column for the thread
	Lite    string // SELECT of the columns in a thread's own database
	Put     string // INSERT of them; empty: it is not one statement
}

// Column is a column and what it holds.
type Column struct {
	Name string
	Kind Kind
}

// Kind of a value.
type Kind byte

// Kinds. A blob is NULL when it is empty.
const (
	Int Kind = iota
	Text
	NullText
	Bytes
	Blob
	Bool
)

// columns reads "name kind" pairs; a column without a kind is a text.
func columns(list string) []Column {
	kinds := map[string]Kind{"int": Int, "text": Text, "null": NullText, "bytes": Bytes, "blob": Blob, "bool": Bool}
	var out []Column
	for c := range strings.SplitSeq(list, ",") {
		name, kind, found := strings.Cut(strings.TrimSpace(c), " ")
		if !found {
			kind = "text"
		}
		out = append(out, Column{name, kinds[kind]})
	}
	return out
}

// Names are the columns as SQL.
func (t *Table) Names() string {
	out := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = c.Name
	}
	return strings.Join(out, ", ")
}

// Dest makes room for a row.
func (t *Table) Dest() []any {
	out := make([]any, len(t.Columns))
	for i, c := range t.Columns {
		switch c.Kind {
		case Int, Bool:
			out[i] = new(int64)
		case Text:
			out[i] = new(string)
		case NullText:
			out[i] = new(*string)
		case Bytes, Blob:
			out[i] = new([]byte)
		}
	}
	return out
}

// Values are what was read into Dest.
func (t *Table) Values(dest []any) []any {
	out := make([]any, len(dest))
	for i, d := range dest {
		switch v := d.(type) {
		case *int64:
			out[i] = *v
		case *string:
			out[i] = *v
		case **string:
			if *v != nil {
				out[i] = **v
			}
		case *[]byte:
			switch {
			case len(*v) > 0:
				out[i] = *v
			case t.Columns[i].Kind == Bytes:
				out[i] = []byte{}
			}
		}
	}
	return out
}

// The tables in the order in which their rows are read and written. A thread's own row
// comes first, and its events next.
var (
	Thread = &Table{Name: "thread", Columns: columns("uuid, tuple, desired, head int, acked int")}
	Event  = &Table{
		Name: "event", Columns: columns("id int, created_at, source, type, subtype null, content, prev bytes, sha256 bytes, erased_key null, erased_proof blob"), Order: "id",
		Lite: "SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, c.prev, c.sha256, t.key, t.proof FROM events e JOIN x_chain c ON c.event_id = e.id LEFT JOIN x_erased t ON t.event_id = e.id ORDER BY e.id",
	}
	Fate = &Table{
		Name: "fate", Columns: columns("inbox_id int, key, thread, fate, at int, error, resolved"), Order: "inbox_id", Inbox: true,
		Lite: "SELECT f.inbox_id, f.key, f.thread, f.fate, f.at, COALESCE(d.error, ''), COALESCE(d.resolved, '') FROM x_fate f LEFT JOIN x_dead d ON d.inbox_id = f.inbox_id ORDER BY f.inbox_id",
	}
	Progress = &Table{
		Name: "progress", Columns: columns("consumer, acked int, updated_at"), Order: "consumer",
		Lite: "SELECT consumer_id, last_acked_id, updated_at FROM consumer_progress ORDER BY consumer_id",
		Put:  "INSERT INTO consumer_progress(consumer_id, last_acked_id, updated_at) VALUES(?,?,?)",
	}
	Fence = plain("fence", "x_fence", "resource, token int", "resource")
	// Origin is what was decided about an inbox event when it was pushed.
	Origin = ofAgent(inbox(plain("origin", "x_origin", "inbox_id int, thread, session_key, account, provider_id, rev int, command, sent_at int, cause, task", "inbox_id")))
	// Process is one in the background.
	Process = ofAgent(inbox(plain("process", "x_process", "id, thread, step_key, token int, state, exit int, tail, seen bool, started_at int, ended_at int, session_key, event", "id")))
	// Media are those of the agent; their data are not rows.
	Media = ofAgent(inbox(plain("media", "x_media", "sha256, mime, name, size int, at int", "sha256")))
	// Step is one of a turn. Whether its result is external is its last column.
	Step = plain("step", "x_step", `turn, key, seq int, kind, state, class, name, call_id, arguments, request_sha256 blob, result blob,
		input int, output int, cached_input int, reasoning int, cache_write int, duration_us int, recorded_at int,
		asks bool, summary, is_error bool, external bool`, "turn, key")
	// Session of a conversation; the list of sessions follows from them. One column
	// has the name of a word that PostgreSQL reserves.
	Session = &Table{
		Name: "session", Columns: columns(sessionColumns), Order: "key",
		Lite: "SELECT " + (&Table{Columns: columns(sessionColumns)}).Names() + " FROM x_session",
		Put:  "INSERT INTO x_session(one, " + (&Table{Columns: columns(sessionColumns)}).Names() + ") VALUES(1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	}
	File = &Table{Name: "agent_file", Columns: columns("name, content bytes"), Order: "name"}
	All  = []*Table{
		Event,
		{
			Name: "subscription", Columns: columns("consumer, handler, filter null"), Order: "made",
			Lite: "SELECT consumer_id, handler_cmd, filter FROM subscriptions ORDER BY rowid",
			Put:  "INSERT INTO subscriptions(consumer_id, handler_cmd, filter) VALUES(?,?,?)",
		},
		Progress,
		plain("dedupe", "x_dedupe", "key, event_id int, token int", "key"),
		Fence,
		inbox(plain("route", "x_route", "from_id int, mode, encoding int", "from_id")),
		Fate,
		inbox(plain("outbox", "x_outbox", "thread, head int, acked int, dead int", "thread")),
		plain("turn", "x_turn", `key, inbox_id int, state, fate, crash_attempts int, error_attempts int, not_before int, waiting_since int,
			error, leader, reply_context, inbound_id int, reply_id int, error_id int, claimed_at int, finished_at int, attempts`, "key"),
		Step,
		plain("delivery", "x_delivery", `event_id int, key, state, attempts int, crashes int, not_before int, channel, provider_id, boot_id, error,
			maybe_duplicate bool, created_at int, updated_at int, resolved, parts int, reach int`, "event_id"),
		plain("memory", "x_memory", "layer, n int, digested int, seen int, base, text, thread, event", "layer"),
		Origin,
		Process,
		Media,
		Session,
	}
)

const sessionColumns = `key, epoch, epoch_from int, started_at int, pending, pending_by, model, thinking, "verbose", reasoning,
	queue_mode, usage_footer, elevated, title, archived bool`

// plain is a table that differs in its name alone.
func plain(name, lite, list, order string) *Table {
	t := &Table{Name: name, Columns: columns(list), Order: order}
	t.Lite = "SELECT " + t.Names() + " FROM " + lite + " ORDER BY " + order
	t.Put = "INSERT INTO " + lite + "(" + t.Names() + ") VALUES(?" + strings.Repeat(",?", len(t.Columns)-1) + ")"
	return t
}

func inbox(t *Table) *Table {
	t.Inbox = true
	return t
}

func ofAgent(t *Table) *Table {
	t.Agent = true
	return t
}

// Sum is the digest of the rows of an agent, and the check of its chains.
type Sum struct {
	all    hash.Hash
	parts  map[string]hash.Hash // by thread and table, to say where two differ
	thread string
	prev   []byte // hash of the last event

	Threads, Events, Rows, Bytes int64
}

// NewSum makes one of no rows.
func NewSum() *Sum { return &Sum{all: sha256.New(), parts: map[string]hash.Hash{}} }

// Add takes a row; store.ErrCorrupt when an event does not match its chain.
func (s *Sum) Add(r Row) error {
	if r.Table == Thread {
		s.thread, s.prev = r.Thread, []byte{}
		s.Threads++
	}
	if r.Table == Event {
		if err := s.link(r); err != nil {
			return err
		}
	}
	name := r.Thread + " " + r.Table.Name
	part, ok := s.parts[name]
	if !ok {
		part = sha256.New()
		s.parts[name] = part
	}
	b := encode(name, r.Values)
	_, _ = s.all.Write(b) // a hash takes everything
	_, _ = part.Write(b)
	s.Rows++
	s.Bytes += int64(len(b))
	return nil
}

func (s *Sum) link(r Row) error {
	e := thread.Event{ID: r.Values[0].(int64), CreatedAt: r.Values[1].(string), Source: r.Values[2].(string), Type: r.Values[3].(string), Content: r.Values[5].(string)}
	if sub, ok := r.Values[4].(string); ok {
		e.Subtype = &sub
	}
	prev, sha := r.Values[6].([]byte), r.Values[7].([]byte)
	got := e.Hash(prev)
	linked := bytes.Equal(got[:], sha)
	if proof, ok := r.Values[9].([]byte); ok { // of one that was erased the tomb vouches
		key, _ := r.Values[8].(string)
		linked = bytes.Equal(proof, thread.TombstoneProof(e, sha, key))
	}
	if r.Thread != s.thread || !bytes.Equal(prev, s.prev) || !linked {
		return fmt.Errorf("event %d of %s does not match its hash: %w", e.ID, r.Thread, store.ErrCorrupt)
	}
	s.prev = sha
	s.Events++
	return nil
}

// encode gives each value its kind and length, so that no two rows share an encoding.
func encode(name string, values []any) []byte {
	var b []byte
	put := func(tag byte, v string) {
		b = append(b, tag)
		b = binary.BigEndian.AppendUint64(b, uint64(len(v)))
		b = append(b, v...)
	}
	put('r', name)
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			put('n', "")
		case int64:
			put('i', fmt.Sprint(v))
		case string:
			put('s', v)
		case []byte:
			put('b', string(v))
		}
	}
	return b
}

// Digest is that of all rows so far, in hex.
func (s *Sum) Digest() string { return hex.EncodeToString(s.all.Sum(nil)) }

// Differs names the tables in which two sums are not the same.
func (s *Sum) Differs(o *Sum) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.parts)) {
		if p, ok := s.parts[name]; !ok || !bytes.Equal(p.Sum(nil), o.parts[name].Sum(nil)) {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return strings.Join(out, ", ")
}
