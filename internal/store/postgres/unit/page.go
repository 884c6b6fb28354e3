package unit

import (
	"context"
	"slices"
	"strconv"

	"github.com/theclaw/agents/internal/thread"
)

// Columns selects an event in the order Scan reads it.
const Columns = "id, created_at, source, type, subtype, content"

// Scan reads an event selected by Columns.
func Scan(scan func(...any) error) (thread.Event, error) {
	var e thread.Event
	err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content)
	return e, err
}

// OneEvent reads one event: $3 is its id.
const OneEvent = "SELECT " + Columns + " FROM event WHERE agent_id = $1 AND thread_id = $2 AND id = $3"

// Event queues the read of one event.
func (t *Tx) Event(id int64, e *thread.Event, found *bool) {
	t.One(OneEvent, []any{id}, found, &e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content)
}

// Page selects events of the thread within a budget.
type Page struct {
	Where  string // condition on the columns of e, an event; its values from $3
	Args   []any
	Desc   bool // the newest; they are answered in rising id as well
	Limit  int
	Budget int // bytes; one event is answered whatever its size
	With   *With
}

// With adds to each event of a page what else is stored for it.
type With struct {
	Join    string         // of the events, whose alias is sized
	Columns string         // of Join
	Dest    []any          // where they go
	Each    func(id int64) // is called for each event that is answered, while Dest has its columns
}

// sizeOf is thread.Event.Size of what is stored.
const sizeOf = "octet_length(created_at) + octet_length(source) + octet_length(type) + octet_length(content) + COALESCE(octet_length(subtype), 0) + 16"

// SQL is the statement and its values from $3. The server counts the bytes, so that
// what does not fit is not sent: the last row may be the first that does not.
func (p Page) SQL() (string, []any) {
	order, n := "id", len(p.Args)+3
	if p.Desc {
		order = "id DESC"
	}
	limit, budget := "$"+strconv.Itoa(n), "$"+strconv.Itoa(n+1)
	columns, join := "", ""
	if w := p.With; w != nil {
		columns, join = ", "+w.Columns, " "+w.Join
	}
	return "SELECT " + Columns + ", upto <= " + budget + "::bigint" + columns + " FROM (" +
			"SELECT *, sum(size) OVER by_id AS upto, row_number() OVER by_id AS nth FROM (" +
			"SELECT " + Columns + ", " + sizeOf + " AS size FROM event e WHERE agent_id = $1 AND thread_id = $2 AND (" + p.Where + ") ORDER BY " + order + " LIMIT " + limit +
			"::bigint) AS page WINDOW by_id AS (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING)) AS sized" + join + " WHERE nth <= 2 OR upto - size <= " + budget + "::bigint ORDER BY " + order,
		append(slices.Clip(p.Args), p.Limit+1, p.Budget)
}

// Page queues the read of a page; more reports that there are events behind it.
func (t *Tx) Page(p Page, events *[]thread.Event, more *bool) {
	sql, args := p.SQL()
	t.Read(sql, args, p.into(events, more))
}

// PageNow is Page in a trip of its own.
func (t *Tx) PageNow(ctx context.Context, p Page, events *[]thread.Event, more *bool) error {
	sql, args := p.SQL()
	return t.Now(ctx, sql, args, p.into(events, more))
}

func (p Page) into(events *[]thread.Event, more *bool) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		var e thread.Event
		var fits bool
		dest := []any{&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &fits}
		if p.With != nil {
			dest = append(dest, p.With.Dest...)
		}
		if err := scan(dest...); err != nil {
			return err
		}
		if n := len(*events); n == p.Limit || (n > 0 && !fits) {
			*more = true
			return nil
		}
		if p.Desc {
			*events = slices.Insert(*events, 0, e)
		} else {
			*events = append(*events, e)
		}
		if p.With != nil {
			p.With.Each(e.ID)
		}
		return nil
	}
}
