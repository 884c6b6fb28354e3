package workdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Sizes.
const (
	// Piece is the most bytes of a piece: a few fit into one message.
	Piece = 512 << 10
	// MaxFiles and MaxManifest bound a tree: its manifest is one message.
	MaxFiles    = 20_000
	MaxManifest = 3 << 20
)

// Kinds of an entry.
const (
	File = "f"
	Link = "l"
	Dir  = "d"
)

// Entry is one thing in a directory. Path and Target are bytes as the file system has
// them; in a manifest those that are not UTF-8 are in the fields for raw names.
type Entry struct {
	Path   string   `json:"p"` // with slashes, below the directory
	Kind   string   `json:"k"`
	Mode   uint32   `json:"m,omitempty"` // permissions; a link has none
	Size   int64    `json:"s,omitempty"`
	Target string   `json:"t,omitempty"` // of a link
	Pieces []string `json:"c,omitempty"` // sha256 in hex, in order

	RawPath   []byte `json:"rp,omitempty"` // instead of Path, in a manifest only
	RawTarget []byte `json:"rt,omitempty"` // instead of Target, in a manifest only
}

// encoded is an entry as a manifest has it.
func (e Entry) encoded() Entry {
	if !utf8.ValidString(e.Path) {
		e.Path, e.RawPath = "", []byte(e.Path)
	}
	if !utf8.ValidString(e.Target) {
		e.Target, e.RawTarget = "", []byte(e.Target)
	}
	return e
}

// decoded is an entry of a manifest as [Tree] has it; false for one that is not in the
// form of encoded.
func (e Entry) decoded() (Entry, bool) {
	ok := true
	for text, raw := range map[*string]*[]byte{&e.Path: &e.RawPath, &e.Target: &e.RawTarget} {
		if len(*raw) > 0 {
			ok = ok && *text == "" && !utf8.Valid(*raw)
			*text, *raw = string(*raw), nil
		}
	}
	return e, ok
}

// Tree is a directory.
type Tree struct {
	Entries []Entry `json:"entries"`
}

// TooLarge reports that a directory has more than may be kept.
type TooLarge struct{ What string }

func (e *TooLarge) Error() string { return e.What }

// Size is the sum of the files in bytes.
func (t Tree) Size() (n int64) {
	for _, e := range t.Entries {
		n += e.Size
	}
	return n
}

// Pieces are those of all files, each once.
func (t Tree) Pieces() map[string]bool {
	out := map[string]bool{}
	for _, e := range t.Entries {
		for _, p := range e.Pieces {
			out[p] = true
		}
	}
	return out
}

// Encode returns the manifest and its hash.
func (t Tree) Encode() (manifest []byte, hash string, err error) {
	out := Tree{Entries: slices.Clone(t.Entries)}
	for i, e := range out.Entries {
		out.Entries[i] = e.encoded()
	}
	if manifest, err = json.Marshal(out); err != nil {
		return nil, "", err
	}
	if len(manifest) > MaxManifest {
		return nil, "", &TooLarge{fmt.Sprintf("the list of its files has %d KiB, the most is %d", len(manifest)>>10, MaxManifest>>10)}
	}
	return manifest, Hash(manifest), nil
}

// Hash names a piece or a manifest.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var errManifest = errors.New("the manifest of a working directory is not one")

// Decode reads a manifest. It is input like any other: a path that leads elsewhere,
// stands twice, or has no directory above it is refused.
func Decode(manifest []byte) (Tree, error) {
	var t Tree
	d := json.NewDecoder(bytes.NewReader(manifest))
	d.DisallowUnknownFields()
	if len(manifest) > MaxManifest || d.Decode(&t) != nil || len(t.Entries) > MaxFiles {
		return Tree{}, errManifest
	}
	dirs, last := map[string]bool{".": true}, ""
	for i, e := range t.Entries {
		e, ok := e.decoded()
		if err := e.check(); !ok || err != nil || e.Path <= last || !dirs[path.Dir(e.Path)] {
			return Tree{}, errors.Join(fmt.Errorf("%w: %.200q", errManifest, e.Path), err)
		}
		t.Entries[i] = e
		dirs[e.Path], last = e.Kind == Dir, e.Path
	}
	return t, nil
}

func (e Entry) check() error {
	local := filepath.IsLocal(e.Path) && path.Clean(e.Path) == e.Path && e.Path != "." && !strings.Contains(e.Path, "\x00")
	pieces := (e.Size + Piece - 1) / Piece
	switch {
	case !local, e.Size < 0, e.Mode&^0o777 != 0, e.Kind != File && (e.Size != 0 || len(e.Pieces) != 0), int64(len(e.Pieces)) != pieces:
		return errManifest
	case e.Kind == Link:
		if e.Target == "" || len(e.Target) > 4096 || strings.Contains(e.Target, "\x00") {
			return errManifest
		}
	case e.Kind != File && e.Kind != Dir:
		return errManifest
	}
	for _, p := range e.Pieces {
		if b, err := hex.DecodeString(p); err != nil || len(b) != sha256.Size {
			return errManifest
		}
	}
	return nil
}

// Ignored reports whether a path is left out by a pattern: one of path.Match for a name
// anywhere, or with a slash for a path from the top. What is in a directory that is
// left out is too.
func Ignored(name string, patterns []string) bool {
	for _, p := range patterns {
		whole, base := strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/"), path.Base(name)
		if strings.Contains(strings.TrimSuffix(p, "/"), "/") {
			base = name
		}
		if ok, err := path.Match(whole, base); ok && err == nil {
			return true
		}
	}
	return false
}
