package invariant_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// Media whose data are missing or damaged are found; in a home at work, data that are not there may have been removed
// since the row was read.
func TestMedia(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("picture")))
	for name, c := range map[string]struct {
		data        string // empty: no file
		found, live bool   // found at rest, and at work
	}{
		"intact":  {"picture", false, false},
		"damaged": {"pictura", true, true},
		"missing": {"", true, false},
	} {
		h, o := home(t)
		alter(t, h, "inbox", func(tx *sql.Tx) error {
			return statements(tx, append(slices.Clone(schema.Origins), schema.Media,
				"INSERT INTO x_media(sha256, mime, name, size, at) VALUES('"+sum+"', 'image/png', 'x.png', 7, 1)",
				fmt.Sprint("UPDATE x_meta SET format = ", schema.FormatMedia)))
		})
		if c.data != "" {
			dir := filepath.Join(h.AgentDir("a1"), "media", sum[:2])
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, sum), []byte(c.data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for live, want := range map[bool]bool{false: c.found, true: c.live} {
			o.Live = live
			got := false
			for _, f := range violations(check(t, h, o)) {
				if f.Invariant != "media" {
					t.Errorf("%s: %v", name, f)
				}
				got = true
			}
			if got != want {
				t.Errorf("%s, at work %v: found %v", name, live, got)
			}
		}
	}
}
