package db

import (
	"fmt"

	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// Create makes a thread directory; see schema.Create. Errors: store.ErrDiskFull,
// ErrReadOnly, ErrIO.
func Create(dir string) (bool, error) { return Make(dir, schema.Create) }

// Make is Create in another way: schema.Make or schema.Prepare.
func Make(dir string, how func(dir string) (bool, error)) (bool, error) {
	created, err := how(dir)
	return created, FileError(err)
}

// adopt adds our tables to a database of the external tool, or to a fresh
// image, and answers its format. What the external tool's agent has acked is
// done, so our acks begin there; each inbox event below gets the fate silent,
// because whether it was answered cannot be told any more.
func (d *DB) adopt() (int, error) {
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		return 0, fmt.Errorf("add tables: %w", err)
	}
	format, err := d.addTables()
	if err == nil {
		err = d.exec("COMMIT")
	}
	if err != nil {
		_ = d.exec("ROLLBACK") // ended already when COMMIT undid it
		return 0, fmt.Errorf("add tables: %w", err)
	}
	return format, nil
}

func (d *DB) addTables() (int, error) {
	if err := d.conn.Script(schema.SQL); err != nil {
		return 0, err
	}
	tx := &Tx{d: d}
	n, err := tx.Exec("INSERT OR IGNORE INTO x_meta(one, uuid, format) VALUES(1, ?, ?)", schema.NewUUID(), schema.Format)
	if err != nil {
		return 0, err
	}
	format := 0
	if _, err := tx.Row("SELECT uuid, format FROM x_meta", nil, &d.uuid, &format); err != nil || n == 0 {
		return format, err
	}
	if _, err := tx.Exec(`INSERT OR IGNORE INTO x_ack(consumer, id) SELECT consumer_id, MIN(last_acked_id, (SELECT COALESCE(MAX(id),0) FROM events))
		FROM consumer_progress WHERE consumer_id IN ('inbox','outbound')`); err != nil {
		return format, err
	}
	var acked int64
	if _, err := tx.Row("SELECT id FROM x_ack WHERE consumer = 'inbox'", nil, &acked); err != nil {
		return format, err
	}
	return format, d.between(0, acked+1, func(e thread.Event) error {
		fate := "silent"
		if e.Type != thread.TypeMessage {
			fate = "not-a-message"
		}
		_, err := tx.Exec("INSERT OR IGNORE "+schema.IntoFate, e.ID, e.Key(d.uuid), "", fate, thread.ParseStamp(e.CreatedAt).UnixMilli())
		return err
	})
}

// addColumns adds what a database of the same format lacks, as the texts of its
// tables say. A table that is not there is fsck's to make.
func (d *DB) addColumns() error {
	var have string
	if _, err := d.ask("SELECT COALESCE(GROUP_CONCAT(sql, ';'), '') FROM sqlite_master WHERE type = 'table' AND name IN ('x_step', 'x_delivery', 'x_turn')", nil, &have); err != nil {
		return fmt.Errorf("read tables: %w", err)
	}
	for _, add := range schema.Lacking(have) {
		if err := d.exec(add); err != nil {
			return fmt.Errorf("add a column: %w", err)
		}
	}
	return nil
}
