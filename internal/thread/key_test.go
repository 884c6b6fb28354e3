package thread_test

import (
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

// RELIABILITY 2: an id that is handed out again is another message as soon as
// anything about it differs; the same row has the same key for good.
func TestKeyTellsReusedIDsApart(t *testing.T) {
	sub := "x"
	e := thread.Event{ID: 5, CreatedAt: "2026-01-01T00:00:00.000Z", Source: "s", Type: "message", Content: "{}"}
	key := e.Key("uuid")
	if again := e.Key("uuid"); again != key {
		t.Errorf("the same event has the keys %s and %s", key, again)
	}
	for name, change := range map[string]func(*thread.Event){
		"content": func(e *thread.Event) { e.Content = "{ }" },
		"source":  func(e *thread.Event) { e.Source = "t" },
		"time":    func(e *thread.Event) { e.CreatedAt = "2026-01-01T00:00:00.001Z" },
		"type":    func(e *thread.Event) { e.Type = "record" },
		"subtype": func(e *thread.Event) { e.Subtype = &sub },
	} {
		other := e
		change(&other)
		if other.Key("uuid") == key {
			t.Errorf("another %s gives the same key %s", name, key)
		}
	}
	if e.Key("another") == key {
		t.Error("two inboxes give the same key")
	}
	if id, ok := thread.KeyID(key); !ok || id != 5 {
		t.Errorf("the id in %s is %d, %v", key, id, ok)
	}
}
