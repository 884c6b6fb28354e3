package exposure_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant/exposure"
)

// What lets other users in is exposed, a program of a hook is not because its owner can run it, and each mode to be
// set keeps that.
func TestExposed(t *testing.T) {
	home := layout.At(t.TempDir())
	want := map[string]fs.FileMode{}                    // the mode to be set, where one is exposed
	for name, modes := range map[string][2]fs.FileMode{ // that it has, and that is to be set; 0: none
		"theclaw.yaml": {0o600, 0}, "registry.db": {0o640, 0o600}, "hooks/a.sh": {0o700, 0}, "hooks/lib/b.sh": {0o755, 0o700}, "hooks/c.json": {0o644, 0o600},
		"agents/a1/hooks/d.sh": {0o700, 0}, "agents/a1/config.yaml": {0o700, 0o600}, "agents/a1/workdir/e.sh": {0o755, 0},
		"agents/hooks/config.yaml": {0o700, 0o600}, "agents/hooks/hooks/f.sh": {0o777, 0o700},
	} {
		path := filepath.Join(home.Path(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, modes[0]); err != nil {
			t.Fatal(err)
		}
		if modes[1] != 0 {
			want[name] = modes[1]
		}
	}
	got := map[string]fs.FileMode{}
	err := exposure.Walk(t.Context(), home, "", func(f exposure.File) error {
		if how, most := f.Exposed(); how != exposure.Private && f.Path != "." {
			got[f.Path] = f.Info.Mode().Perm() & most
		}
		return nil
	}, func(f exposure.File, err error) { t.Errorf("%s: %v", f.Path, err) })
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
