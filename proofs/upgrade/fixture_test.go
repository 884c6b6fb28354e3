//go:build proof

package upgrade_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
)

const agent = "a1"

// A message is one that a client has sent.
type message struct {
	Peer string
	Kind string // run, echo, fail or refuse
	Key  string // idempotency key of the push
	ID   int64  // in the inbox; 0: the client had no answer
}

// text is what the message says to the offline model. A tool writes a line that no other
// run of a tool writes.
func (m message) text() string {
	switch m.Kind {
	case "run":
		return "run: echo $TOOL_IDEMPOTENCY_KEY $(cat /proc/sys/kernel/random/uuid) >> " + ranFile
	case "fail":
		return "fail: auth "
	case "refuse":
		return "say: " + m.Key + " " + world.Refused
	}
	return "say: " + m.Key
}

// A record is what the world outside of a store knew when the build was killed.
type record struct {
	Build, Store, Label, Mode string
	Seconds                   int64 // when, since 1970
	Sink                      string
	Messages                  []message
	Arrivals                  []invariant.Arrival
	Ran                       []string // lines that tools wrote
}

const (
	ranFile    = "ran.txt"
	recordFile = "record.json"
	dumpFile   = "dump.sql"
)

// ran are the lines that tools wrote below a home.
func ran(t testing.TB, home string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "agents", agent, "workdir", ranFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// arrivals are what a receiver saw.
func arrivals(s *world.Sink) (out []invariant.Arrival) {
	for _, a := range s.Arrivals("") {
		out = append(out, invariant.Arrival{Key: a.Key, MaybeDuplicate: a.MaybeDuplicate, Agent: a.AgentID, Thread: a.ThreadID, EventID: a.EventID})
	}
	return out
}

// pack writes a fixture. Without a dump it holds the files of the home.
func pack(t testing.TB, path string, r record, home string, dump []byte) {
	t.Helper()
	var buf bytes.Buffer
	z, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	w := tar.NewWriter(z)
	add := func(name string, mode fs.FileMode, b []byte) {
		check(t, w.WriteHeader(&tar.Header{Name: name, Mode: int64(mode.Perm()), Size: int64(len(b)), Typeflag: tar.TypeReg}))
		_, err := w.Write(b)
		check(t, err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	check(t, err)
	add(recordFile, 0o600, b)
	if dump != nil {
		add(dumpFile, 0o600, dump)
	} else {
		check(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := "home" + strings.TrimPrefix(path, home)
			switch {
			case d.IsDir():
				return w.WriteHeader(&tar.Header{Name: name + "/", Mode: 0o700, Typeflag: tar.TypeDir})
			case d.Type().IsRegular():
				i, err := d.Info()
				if err != nil {
					return err
				}
				b, err := os.ReadFile(path)
				add(name, i.Mode(), b)
				return err
			}
			return nil // a socket
		}))
	}
	check(t, errors.Join(w.Close(), z.Close()))
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, buf.Bytes(), 0o644))
}

// unpack lays out the home of a fixture, or answers its dump.
func unpack(t testing.TB, path, home string) (r record, dump string) {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	check(t, err)
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return r, dump
		}
		check(t, err)
		b, err := io.ReadAll(tr)
		check(t, err)
		name, in := strings.CutPrefix(h.Name, "home/")
		switch {
		case h.Name == recordFile:
			check(t, json.Unmarshal(b, &r))
		case h.Name == dumpFile:
			dump = string(b)
		case !in || name != "" && !filepath.IsLocal(name):
			t.Fatalf("%s holds %s", path, h.Name)
		case h.Typeflag == tar.TypeDir:
			check(t, os.MkdirAll(filepath.Join(home, name), 0o700))
		default:
			check(t, os.WriteFile(filepath.Join(home, name), b, fs.FileMode(h.Mode)))
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is where the fixture of a build, a store and a label is.
func fixture(build, store, label string) string {
	return filepath.Join("testdata", build, store, fmt.Sprintf("%s.tar.gz", label))
}
