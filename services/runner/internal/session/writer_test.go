package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/session"
)

// Of several sessions of a thread the last is written, once; a thread that was
// handed to a program is left alone.
func TestLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	var l session.Writer
	for _, text := range []string{"first", "second"} {
		for _, thread := range []string{"threads/main", "threads/other"} {
			l.Write(dir, thread, "", []model.Message{{Role: model.RoleUser, Text: text}}, func(err error) { t.Error(err) })
		}
	}
	l.Drop(dir, "threads/other")
	l.Flush()
	got, err := os.ReadFile(session.Path(dir, "threads/main"))
	if want := `{"role":"user","content":"second"}` + "\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Stat(session.Path(dir, "threads/other")); err == nil {
		t.Error("a session was written that a program has now")
	}
}

// A removed agent does not come back by its session.
func TestLaterLeavesARemovedAgent(t *testing.T) {
	agent := filepath.Join(t.TempDir(), "gone")
	var l session.Writer
	failed := false
	l.Write(filepath.Join(agent, "sessions"), "threads/main", "", nil, func(error) { failed = true })
	l.Flush()
	if _, err := os.Stat(agent); err == nil || !failed {
		t.Errorf("the directory is back: %v, told: %v", err, failed)
	}
}
