package legacy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/agentdir/safefile"
)

// recordName is the file of an agent's directory that lists what Apply changed.
const recordName = "migration.json"

// The kinds of step.
const (
	replaced = "replaced"
	renamed  = "renamed"
)

// step is a change that the way back needs. It is on record before it is made, so that
// one on record may not have been made.
type step struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Path string    `json:"path"`           // below the agent's directory, with slashes
	To   string    `json:"to,omitempty"`   // of renamed: the later name
	Kept string    `json:"kept,omitempty"` // of replaced: the name of the earlier bytes; empty: there was no file
}

// steps reads the record; none when there is no file.
func (s *scan) steps() (out []step, err error) {
	data, err := os.ReadFile(filepath.Join(s.dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("read %s: %w", recordName, err)
	}
	for _, one := range out {
		for _, path := range []string{one.Path, one.To, one.Kept} {
			if path != "" && !filepath.IsLocal(filepath.FromSlash(path)) {
				return nil, fmt.Errorf("read %s: %.80q lies outside of the directory", recordName, path)
			}
		}
	}
	return out, nil
}

// record adds a step; it is on disk when the call returns.
func (s *scan) record(one step) error {
	list, err := s.steps()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(o step) bool {
		return o.Kind == one.Kind && o.Path == one.Path && o.To == one.To && o.Kept == one.Kept
	}) {
		return nil // an interrupted run made it
	}
	one.At = s.o.Now.UTC()
	data, err := json.MarshalIndent(append(list, one), "", "  ")
	if err != nil {
		return err
	}
	return keep(s.dir, recordName, append(data, '\n'))
}

// replace gives a file of the agent's directory new bytes; the earlier ones keep a name.
func (s *scan) replace(name string, data []byte, stamp string) (err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	one := step{Kind: replaced, Path: name}
	was, err := safefile.Read(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		one.Kept = s.free(name + ".migrated-" + stamp)
		if err := safefile.Replace(root, one.Kept, was); err != nil {
			return err
		}
	}
	if err := s.record(one); err != nil {
		return err
	}
	return safefile.Replace(root, name, data)
}

// free is a name that nothing has: this one, or one with a number behind it.
func (s *scan) free(name string) string {
	out := name
	for n := 2; exists(filepath.Join(s.dir, filepath.FromSlash(out))); n++ {
		out = fmt.Sprintf("%s-%d", name, n)
	}
	return out
}

// rename gives a file of the agent's directory another name, never that of another one.
func (s *scan) rename(from, to string) error {
	a, b := filepath.Join(s.dir, filepath.FromSlash(from)), filepath.Join(s.dir, filepath.FromSlash(to))
	if !exists(a) {
		return &os.LinkError{Op: "rename", Old: a, New: b, Err: fs.ErrNotExist}
	}
	if err := s.record(step{Kind: renamed, Path: from, To: to}); err != nil {
		return err
	}
	return rename(a, b)
}
