package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

// FuzzLines is the salvage of events.jsonl: whatever stands in it, whole lines of ours
// come back as they were written, and nothing panics.
func FuzzLines(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte(`{"id":1,"created_at":"t","source":"s","type":"message","subtype":null,"content":"x"}` + "\n"))
	f.Add([]byte(`{"id":2,"content":"half`))
	f.Add([]byte("\x00\xff{\n{}\n{\"id\":-1}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, junk []byte) {
		want := thread.Event{ID: 7, CreatedAt: "2026-01-01T00:00:00.000Z", Source: "self", Type: "message", Content: "kept"}
		text := append(append(append([]byte{}, junk...), '\n'), append(want.AppendLine(nil), '\n')...)
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		var last thread.Event
		err := Lines(dir, func(e thread.Event) error {
			if e.ID <= 0 {
				t.Errorf("id %d", e.ID)
			}
			last = e
			return nil
		})
		if err != nil || last != want {
			t.Errorf("the line behind it is %+v, %v", last, err)
		}
	})
}
