package leftover

import "testing"

func TestIs(t *testing.T) {
	for rel, want := range map[string]bool{
		"agents/.a1.tmp-x7":                        true,
		"agents/.restore.tmp-x7":                   true,
		"run/backup-123":                           true,
		"agents/a1/inbox/.events.db.99":            true,
		"agents/a1/threads/peers/x/.events.jsonl.": false,
		"agents/a1/threads/peers/x/.salvage-1":     true,
		"agents/a1/.config.yaml8":                  true,
		"agents/a1/memory/.agent.md8":              true,
		"agents/a1/workdir/.agent.md8":             false,
		"agents/a1/inbox/events.db.corrupt-1":      false,
		"agents/.a1.replaced-20260101":             false,
		"agents/a1":                                false,
		".config.yaml8":                            false,
	} {
		if Is(rel) != want {
			t.Errorf("%s: %v", rel, !want)
		}
	}
}
