package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
)

// media describes data.
func media(data string) store.MediaInfo {
	sum := sha256.Sum256([]byte(data))
	return store.MediaInfo{SHA256: hex.EncodeToString(sum[:]), MIME: "image/png", Name: "x.png", Size: int64(len(data))}
}

func format(t *testing.T, e *Engine) (n int) {
	t.Helper()
	if err := e.do(t.Context(), store.Inbox("a"), false, func(tx *db.Tx) error {
		_, err := tx.Row("SELECT format FROM x_meta", nil, &n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// What a killed write has left, a file without its name or without its row, is removed when it is old: the first by a later
// write, the second by a removal. A file that is missing or was replaced is there again after a repeat.
func TestMediaFiles(t *testing.T) {
	root := home(t, "a")
	e := engine(t, root)
	dir := filepath.Join(root, "a/media")
	if _, err := e.MediaInfo(t.Context(), "a", media("x").SHA256); !errors.Is(err, store.ErrNoMedia) {
		t.Errorf("of an inbox without media: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || format(t, e) != schema.Format {
		t.Errorf("an agent without media has format %d and a directory: %v", format(t, e), err)
	}
	put := func(data string) string {
		t.Helper()
		if err := e.PutMedia(t.Context(), "a", nil, media(data), []byte(data)); err != nil {
			t.Fatal(err)
		}
		return mediaFile(dir, media(data).SHA256)
	}
	kept := put("kept")
	if format(t, e) != schema.FormatMedia {
		t.Errorf("format %d", format(t, e))
	}
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	left := func(path string, age time.Duration) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(-age); os.Chtimes(path, at, at) != nil {
			t.Fatal("no times")
		}
		return path
	}
	oldPart, newPart := left(filepath.Join(dir, ".media-1"), 2*store.MediaGrace), left(filepath.Join(dir, ".media-2"), 0)
	oldFile, newFile := left(mediaFile(dir, media("old").SHA256), 2*store.MediaGrace), left(mediaFile(dir, media("new").SHA256), 0)
	for range 2 { // the second time over a file that is not its own
		if err := os.WriteFile(kept, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		put("kept")
	}
	if b, err := e.MediaPiece(t.Context(), "a", media("kept").SHA256, 0); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := e.RemoveMedia(t.Context(), "a", nil, time.Now().Add(-store.MediaGrace)); err != nil {
		t.Fatal(err)
	}
	for path, there := range map[string]bool{kept: true, oldPart: false, newPart: true, oldFile: false, newFile: true} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := e.RemoveMedia(t.Context(), "a", []string{media("kept").SHA256}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

// An agent that was removed gets no directory again.
func TestMediaOfRemovedAgent(t *testing.T) {
	root := home(t, "a")
	e := engine(t, root)
	if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	if err := e.PutMedia(t.Context(), "a", nil, media("x"), []byte("x")); err == nil {
		t.Error("it was written")
	}
	if _, err := os.Stat(filepath.Join(root, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}
