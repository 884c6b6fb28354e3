package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// forge is a backup of one file of 512 bytes, whose manifest is right about it. With
// holes the file says, as GNU tar does, that it is 8 EiB long and holds no block.
func forge(t testing.TB, holes bool) []byte {
	t.Helper()
	const name = "agents/a1/USAGE.md"
	body := append([]byte("0\n"), make([]byte, 510)...) // a map of no blocks
	sum := sha256.Sum256(body)
	last, err := json.Marshal(Manifest{Files: []Entry{{Name: name, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range []struct {
		name string
		body []byte
	}{{HeadName, []byte(`{"format":1,"agents":["a1"]}`)}, {name, body}, {ManifestName, last}} {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(e.body)), Format: tar.FormatPAX}
		if holes && e.name == name { // the writer refuses the true names
			h.PAXRecords = map[string]string{"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.realsize": "8000000000000000000"}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse"))
}

// A page of a tar may say that a file of it is 8 EiB of nothing. It is refused before a
// byte of it is made up.
func TestHolesRefused(t *testing.T) {
	if _, err := Inspect(t.Context(), bytes.NewReader(forge(t, false))); err != nil {
		t.Fatal(err)
	}
	b := forge(t, true)
	r := tar.NewReader(bytes.NewReader(b))
	for range 2 {
		if e, err := r.Next(); err != nil || e.Name != HeadName && e.Size != 8e18 {
			t.Fatal(e, err) // not what it is meant to be
		}
	}
	if _, err := Inspect(t.Context(), bytes.NewReader(b)); !fault.Is(err, fault.InvalidArgument) {
		t.Error(err)
	}
}

// S10: whatever a tar holds, reading it ends without a panic, what is refused is
// refused in words, and what is taken names agents by ids and holds no more bytes
// than there are.
func FuzzInspect(f *testing.F) {
	f.Add(forge(f, false))
	f.Add(forge(f, true))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Inspect(t.Context(), bytes.NewReader(b))
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		for _, id := range got.Agents {
			if err := layout.ValidID(id); err != nil {
				t.Error(err)
			}
		}
		if got.Bytes < 0 || got.Bytes > int64(len(b)) {
			t.Errorf("%d bytes of %d", got.Bytes, len(b))
		}
	})
}
