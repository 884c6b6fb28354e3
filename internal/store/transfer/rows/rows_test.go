package rows_test

import (
	"errors"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/thread"
)

// chain is a thread of n events.
func chain(n int64) []rows.Row {
	out := []rows.Row{{Thread: thread.Inbox, Table: rows.Thread, Values: []any{"u", "", "", n, int64(0)}}}
	prev := []byte{}
	for id := int64(1); id <= n; id++ {
		e := thread.Event{ID: id, CreatedAt: "2026-01-01T00:00:00.000Z", Source: "s", Type: thread.TypeMessage, Content: "c"}
		sum := e.Hash(prev)
		out = append(out, rows.Row{Thread: thread.Inbox, Table: rows.Event, Values: []any{id, e.CreatedAt, e.Source, e.Type, nil, e.Content, prev, sum[:], nil, nil}})
		prev = sum[:]
	}
	return out
}

func digest(t *testing.T, list []rows.Row) string {
	t.Helper()
	s := rows.NewSum()
	for _, r := range list {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return s.Digest()
}

// The digest tells any two apart, and an event that is not in its chain is no event.
func TestSum(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func([]rows.Row) []rows.Row{
		"as it is":          func(l []rows.Row) []rows.Row { return l },
		"one less":          func(l []rows.Row) []rows.Row { return l[:len(l)-1] },
		"another desired":   func(l []rows.Row) []rows.Row { l[0].Values[2] = "stopped"; return l },
		"moved between two": func(l []rows.Row) []rows.Row { l[0].Values[1], l[0].Values[0] = "u", ""; return l },
		"another progress":  func(l []rows.Row) []rows.Row { l[0].Values[4] = int64(1); return l },
	} {
		d := digest(t, change(chain(3)))
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
	for name, change := range map[string]func([]rows.Row) []rows.Row{
		"another content": func(l []rows.Row) []rows.Row { l[2].Values[5] = "never said"; return l },
		"a gap":           func(l []rows.Row) []rows.Row { return append(l[:2], l[3]) },
		"a tomb of none":  func(l []rows.Row) []rows.Row { l[2].Values[8], l[2].Values[9] = "k", []byte("proof"); return l },
		"of no thread":    func(l []rows.Row) []rows.Row { return l[1:] },
	} {
		s := rows.NewSum()
		var err error
		for _, r := range change(chain(3)) {
			err = errors.Join(err, s.Add(r))
		}
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
