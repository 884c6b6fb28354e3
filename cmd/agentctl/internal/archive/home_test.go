package archive

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// packed is a backup with the home whose agents' part is text.
func packed(t *testing.T, c homeContent, text string) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := writeHome(f, c, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The agents' part is what was written, whatever its length is in blocks of a tar.
func TestHomePart(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 100_000} {
		want := strings.Repeat("x", n)
		c, agents, err := openHome(bytes.NewReader(packed(t, homeContent{Format: homeFormat, CreatedAt: time.Now()}, want)))
		if err != nil || c == nil {
			t.Fatal(c, err)
		}
		if got, err := io.ReadAll(agents); err != nil || string(got) != want {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	// What is no backup with the home is left unread for what reads it next.
	for _, text := range []string{"", "short", strings.Repeat("long ", 1000)} {
		c, in, err := openHome(strings.NewReader(text))
		if c != nil || err != nil {
			t.Error(c, err)
		}
		if got, err := io.ReadAll(in); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A tar is input like any other: no name leads out of the home or into what is not settings,
// and what was changed or cut is refused before anything is written.
func TestHomeRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "work.key"), []byte("k"), 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := readHome(layout.At(dir), "")
	if err != nil || len(good.Files) != 1 {
		t.Fatal(good, err)
	}
	whole := packed(t, good, "agents")
	if c, _, err := openHome(bytes.NewReader(whole)); err != nil || len(c.Files) != 1 {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "/etc/passwd", "agents/a1/config.yaml", "run/token", "audit/x", "registry.db", "registry.db-wal", ".", "a/../../b", "a//b", "x\ny"} {
		bad := good
		bad.Files = []homeFile{good.Files[0]}
		bad.Files[0].Name = name
		if _, _, err := openHome(bytes.NewReader(packed(t, bad, "agents"))); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
	at := bytes.Index(whole, []byte("home/work.key"))
	changed := bytes.Clone(whole)
	changed[at+tarBlock] = 'K'
	cut := 0
	for _, b := range append([][]byte{changed}, func() (all [][]byte) {
		for n := tarBlock; n < at+2*tarBlock; n += tarBlock / 2 {
			all = append(all, whole[:n])
		}
		return all
	}()...) {
		if _, _, err := openHome(bytes.NewReader(b)); err == nil {
			t.Errorf("%d bytes are taken", len(b))
		}
		cut++
	}
	if cut < 5 {
		t.Error("too few were tried:", cut)
	}
}
