package invariant_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// I41: what runs has no event, what has ended has one or was seen, and every other count is found.
func TestProcessesAreAccounted(t *testing.T) {
	for _, c := range []struct {
		state        string
		seen, events int
		wrong        bool
	}{
		{"running", 0, 0, false},
		{"starting", 0, 0, false},
		{"exited", 0, 1, false},
		{"exited", 1, 0, false},
		{"lost", 0, 0, true},
		{"killed", 0, 2, true},
		{"exited", 1, 1, true},
		{"running", 0, 1, true},
	} {
		h, _ := home(t)
		alter(t, h, "inbox", func(tx *sql.Tx) error {
			list := append(slices.Concat(schema.Origins, schema.Process),
				fmt.Sprintf("INSERT INTO x_process(id, thread, step_key, token, state, seen, started_at) VALUES('p-1', 'threads/x', 'k:tool:1:1', 1, '%s', %d, 1)", c.state, c.seen),
				fmt.Sprint("UPDATE x_meta SET format = ", schema.FormatTools))
			for range c.events {
				list = append(list, "INSERT INTO events(source, type, content) VALUES('internal:process:p-1:a1', 'message', '{}')")
			}
			return statements(tx, list)
		})
		found := 0
		for _, f := range check(t, h, invariant.Options{Agent: "a1"}) {
			if f.Invariant == "I41" {
				found++
			}
		}
		if (found == 1) != c.wrong || found > 1 {
			t.Errorf("%+v: found %d times", c, found)
		}
	}
}

// A salvaged inbox keeps what it knows about processes and media: without the rows, the end of a process would never be
// reported, and the files of media would be removed as those that nothing refers to.
func TestSalvageKeepsProcessesAndMedia(t *testing.T) {
	h, o := home(t)
	alter(t, h, "inbox", func(tx *sql.Tx) error {
		return statements(tx, append(slices.Concat(schema.Origins, schema.Process), schema.Media,
			"INSERT INTO x_process(id, thread, step_key, token, state, started_at) VALUES('p-1', 'threads/x', 'k:tool:1:1', 1, 'running', 1)",
			"INSERT INTO x_media(sha256, mime, name, size, at) VALUES('ab', 'image/png', 'x.png', 7, 1)",
			fmt.Sprint("UPDATE x_meta SET format = ", schema.FormatMedia)))
	})
	edit(t, h, "inbox", "UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2")
	if _, err := repair.Home(t.Context(), h, repair.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range check(t, h, o) {
		if f.Invariant != "media" { // the file was never there
			t.Error(f)
		}
	}
	alter(t, h, "inbox", func(tx *sql.Tx) error {
		var format, processes, media int
		err := tx.QueryRow("SELECT format, (SELECT COUNT(*) FROM x_process), (SELECT COUNT(*) FROM x_media) FROM x_meta").Scan(&format, &processes, &media)
		if format != schema.FormatMedia || processes != 1 || media != 1 {
			t.Errorf("format %d with %d processes and %d media, want %d with 1 and 1", format, processes, media, schema.FormatMedia)
		}
		return err
	})
}

// A database of an earlier build may lack columns; its rows are salvaged as well.
func TestSalvageOfEarlierTables(t *testing.T) {
	h, o := home(t)
	var turns, steps int
	count := func(tx *sql.Tx) (n, m int, err error) {
		return n, m, tx.QueryRow("SELECT (SELECT COUNT(*) FROM x_turn), (SELECT COUNT(*) FROM x_step)").Scan(&n, &m)
	}
	alter(t, h, made.thread, func(tx *sql.Tx) (err error) {
		for _, c := range schema.Later {
			if err == nil {
				_, err = tx.Exec("ALTER TABLE " + c[0] + " DROP COLUMN " + c[1])
			}
		}
		if err == nil {
			turns, steps, err = count(tx)
		}
		return err
	})
	edit(t, h, made.thread, "UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2")
	if _, err := repair.Home(t.Context(), h, repair.Options{}); err != nil {
		t.Fatal(err)
	}
	if found := check(t, h, o); len(found) > 0 {
		t.Error(list(found))
	}
	alter(t, h, made.thread, func(tx *sql.Tx) error {
		n, m, err := count(tx)
		if n != turns || m != steps || turns == 0 || steps == 0 {
			t.Errorf("%d turns and %d steps, want %d and %d", n, m, turns, steps)
		}
		return err
	})
}
