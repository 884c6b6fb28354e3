//go:build proof

package inject_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// most is how many faults of one kind are told in full.
const most = 10

// count is what came of the calls.
type count struct {
	secret                   string // content of a file that nobody may read
	fields                   int
	calls, refused, accepted int
	internal, outside, ran   int
	commands                 int
}

// engine is how the databases speak when a text has reached them as a statement.
var engine = regexp.MustCompile(`SQL logic error|constraint failed|near ".*": syntax error|no such (table|column)|unrecognized token|SQLITE_|SQLSTATE|database disk image`)

// control are characters that a terminal or a log acts upon.
var control = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f]")

// fault tells the first few of a kind.
func (c *count) fault(t testing.TB, n *int, format string, args ...any) {
	t.Helper()
	if *n++; *n <= most {
		t.Errorf(format, args...)
	} else {
		t.Fail()
	}
}

// judge looks at the answer to one call.
func (c *count) judge(t testing.TB, what, id string, answer []byte, err error) {
	t.Helper()
	c.calls++
	if err == nil {
		c.accepted++
	} else {
		c.refused++
	}
	text := status.Convert(err).Message()
	switch code := status.Code(err); {
	case err == nil || unread(err):
	case code == codes.Internal, code == codes.Unknown, code == codes.DeadlineExceeded, code == codes.Unavailable, code == codes.DataLoss, code == codes.Unimplemented:
		c.fault(t, &c.internal, "%s with %.80q: %v", what, id, err)
	case engine.MatchString(text):
		c.fault(t, &c.internal, "%s with %.80q: the database says %q", what, id, text)
	case control.MatchString(text):
		c.fault(t, &c.internal, "%s with %.80q: the error holds control characters: %.300q", what, id, text)
	}
	if bytes.Contains(answer, []byte(c.secret)) || strings.Contains(text, c.secret) {
		c.fault(t, &c.outside, "%s with %.80q: the answer holds a file from outside", what, id)
	}
}

// tree is every file below a directory but those below skip: its kind, mode, size,
// time and, where small, content.
func tree(t testing.TB, root, skip string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == skip {
			return fs.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		out[path] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			out[path] += fmt.Sprint(len(b), hex.EncodeToString(sum[:8]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compare names what has changed between two looks at a tree.
func compare(before, after map[string]string) (changed []string) {
	for path, was := range before {
		if is, ok := after[path]; !ok {
			changed = append(changed, path+" is gone")
		} else if is != was {
			changed = append(changed, fmt.Sprintf("%s was %s, is %s", path, was, is))
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			changed = append(changed, path+" is new")
		}
	}
	return changed
}

// harmless is a name that every system takes as one name, and no shell as anything
// else: what our encoding leaves.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_.:@+%~=-]{1,255}$`)

// names looks at every name and mode in the home.
func (c *count) names(t testing.TB, home string) (files int) {
	t.Helper()
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		files++
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !harmless.MatchString(e.Name()) {
			c.fault(t, &c.outside, "the home has a file %q", path)
		}
		if info.Mode().Perm()&0o077 != 0 || info.Mode()&fs.ModeSymlink != 0 {
			c.fault(t, &c.outside, "%q is %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
