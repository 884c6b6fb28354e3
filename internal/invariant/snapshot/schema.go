package snapshot

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// Object is a table or an index, what makes it, and a table's columns.
type Object struct {
	Name, Kind, SQL string
	Columns         []string
}

// Schema answers the tables and indexes that a new database has, tables first,
// as SQLite itself sees them.
var Schema = sync.OnceValues(func() ([]Object, error) {
	ctx := context.Background()
	s, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("learn schema: %w", err)
	}
	defer func() { _ = s.Close() }()
	c, err := s.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("learn schema: %w", err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.ExecContext(ctx, schema.SQL); err != nil {
		return nil, fmt.Errorf("learn schema: %w", err)
	}
	var out []Object
	err = each(ctx, c, "SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC, name", func(r *sql.Rows) error {
		var o Object
		err := r.Scan(&o.Name, &o.Kind, &o.SQL)
		out = append(out, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("learn schema: %w", err)
	}
	columns, err := columnsOf(ctx, c)
	for i := range out {
		out[i].Columns = columns[out[i].Name]
	}
	return out, err
})

func columnsOf(ctx context.Context, c *sql.Conn) (map[string][]string, error) {
	out := map[string][]string{}
	err := each(ctx, c, "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'", func(r *sql.Rows) error {
		var table, column string
		err := r.Scan(&table, &column)
		out[table] = append(out[table], column)
		return err
	})
	return out, err
}

func each(ctx context.Context, c *sql.Conn, query string, fn func(*sql.Rows) error, args ...any) error {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
