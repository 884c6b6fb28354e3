package invariant_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/invariant"
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
