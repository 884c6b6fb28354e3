package invariant_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
)

// I40, I42: a call that asked has run with a used approval, or did nothing, or its approval is gone; an approval that
// belongs to two steps is found.
func TestPromptsAreAccounted(t *testing.T) {
	for _, c := range []struct {
		approval, state string // of the approval, and of the step
		failed          int
		twice           bool
		want            string
	}{
		{"used", "done", 0, false, ""},
		{"denied", "done", 1, false, ""},
		{"pending", "intent", 0, false, ""},
		{"", "done", 0, false, ""},
		{"used", "in_doubt", 0, false, ""},
		{"denied", "done", 0, false, "I40"},
		{"pending", "done", 0, false, "I40"},
		{"expired", "done", 0, false, "I40"},
		{"used", "done", 0, true, "I42"},
	} {
		h, _ := home(t)
		threads := []string{made.thread}
		if c.twice {
			threads = append(threads, made.other)
		}
		for _, id := range threads {
			alter(t, h, id, func(tx *sql.Tx) error {
				return statements(tx, []string{
					fmt.Sprintf("INSERT INTO x_step(turn, key, seq, kind, state, class, recorded_at, asks, summary, is_error) VALUES('k', 'tool:9:1', 99, 'tool', '%s', 'effect', 1, 1, 'exec x', %d)", c.state, c.failed),
				})
			})
		}
		if c.approval != "" {
			ledger(t, h, fmt.Sprintf("INSERT INTO approval(id, agent, thread, key, command, cwd, reason, digest, state, token, requested, expires) VALUES('ap-1', 'a1', 't', 'k:tool:9:1', 'x', '/', 'r', 'd', '%s', 1, 1, 1)", c.approval))
		}
		found := ""
		for _, f := range check(t, h, invariant.Options{Agent: "a1"}) {
			if f.Invariant == "I40" || f.Invariant == "I42" {
				found += f.Invariant
			}
		}
		if found != c.want {
			t.Errorf("%+v: found %q", c, found)
		}
	}
}

// ledger changes registry.db.
func ledger(t *testing.T, h layout.Home, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+h.RegistryDB())
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), statement)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
