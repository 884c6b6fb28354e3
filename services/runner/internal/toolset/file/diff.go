package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/filetree"
)

const (
	// maxDiffed bounds the contents that are compared line by line, in bytes.
	maxDiffed = 1 << 20
	// maxDiffs bounds the text of all differences of one call, in bytes. They are a part of the manifest
	// that is kept with the previous contents.
	maxDiffs = 256 << 10
)

// Diff is how one call changed a file.
type Diff struct {
	// Path of the file, below the working directory.
	Path string
	// Text is a unified diff, or one line that says why there is none.
	Text string
}

// Diffs returns what a call of a tool of this package has changed in a working directory, by the key
// of the call. They are written before the change is made, and kept as long as the previous contents:
// 7 days, and 256 MiB of them. None is no error: the call changed nothing, or they are not kept any more. Programs
// in the sandbox can write where they are kept.
func Diffs(workdir, key string) ([]Diff, error) {
	root, err := os.OpenRoot(workdir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the working directory: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	f, err := filetree.Open(root, path.Join(outputDir, previousName(key), manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open what was kept of a change: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("read what was kept of a change: %w", err)
	}
	var tx transaction
	if err := json.Unmarshal(b, &tx); err != nil {
		return nil, fmt.Errorf("what was kept of a change in %s is damaged: %w", previousName(key), err)
	}
	var diffs []Diff
	for _, e := range tx.Files {
		text, _ := boundary.Text(e.Diff, maxDiffs)
		diffs = append(diffs, Diff{boundary.Name(e.Path), text})
	}
	return diffs, nil
}

// compare sets the differences of the changes of one call.
func compare(changes []change) {
	left := maxDiffs
	for i := range changes {
		ch := &changes[i]
		if ch.Diff = ch.compared(); len(ch.Diff) > left {
			ch.Diff = ch.differ("the difference is too large to keep")
		}
		left -= min(left, len(ch.Diff))
	}
}

// compared is the difference of a change as a unified diff.
func (ch *change) compared() string {
	switch {
	case !text(ch.before) || !text(ch.after):
		return ch.differ("not text")
	case len(ch.before) > maxDiffed || len(ch.after) > maxDiffed:
		return ch.differ("too large to compare")
	}
	from, to := ch.labels()
	return udiff.Unified(from, to, string(ch.before), string(ch.after))
}

// differ is the line for a change without a diff.
func (ch *change) differ(why string) string {
	from, to := ch.labels()
	return fmt.Sprintf("%s and %s differ: %s (%d bytes before, %d after)\n", from, to, why, len(ch.before), len(ch.after))
}

// labels are the names of both contents, as git writes them.
func (ch *change) labels() (from, to string) {
	from, to = "a/"+shown(ch.Path), "b/"+shown(ch.Path)
	if ch.Before == "" {
		from = os.DevNull
	}
	if ch.After == "" {
		to = os.DevNull
	}
	return from, to
}

// text reports whether a content can be shown as lines.
func text(b []byte) bool { return utf8.Valid(b) && !strings.ContainsRune(string(b), 0) }
