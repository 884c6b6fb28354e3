// Package mutants_test proves the proofs: ten things that hold the promises up are
// taken out of the source one by one, and each time a test must notice.
//
// A mutant is a change of text, built with `go test -overlay`, so that the tree is
// never touched. One whose old text is not found fails too, and so does one that is
// noticed for another reason than the right one: both would prove nothing.
package mutants_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theclaw/agents/proofs/drill"
)

// A mutant replaces Old, which stands once in File, by New. Each of its Proofs must
// fail, and for the reason that the guard is there for.
type mutant struct {
	Name, File, Old, New string
	Proofs               []proof
}

// A proof is a test, and the words with which it must fail.
type proof struct{ Package, Test, Says string }

// size makes the proofs that are drills big enough to notice, and no bigger.
var size = []string{"SEED=5", "SEEDS=2", "MESSAGES=100", "N=40"}

// overlay writes a mutant beside the tree and answers the file that tells go.
func (m mutant) overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, m.File)
	src, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("%s: %v", m.Name, err)
		return ""
	}
	if n := strings.Count(string(src), m.Old); n != 1 {
		t.Errorf("%s: the text to take out stands %d times in %s", m.Name, n, m.File)
		return ""
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(strings.Replace(string(src), m.Old, m.New, 1)), overlay: spec} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// catches runs one proof over a mutant and answers the line that gave it away.
func (p proof) catches(t *testing.T, root, overlay string) (string, bool) {
	t.Helper()
	says, err := regexp.Compile(p.Says)
	if err != nil {
		t.Fatal(err)
	}
	run := "^" + strings.ReplaceAll(p.Test, "/", "$/^") + "$"
	test := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-timeout=2m", "-v", "-run", run, "./"+p.Package)
	test.Dir, test.Env = root, append(os.Environ(), size...)
	out, err := test.CombinedOutput()
	failed := strings.Contains(string(out), "--- FAIL: "+p.Test+" ")
	said := says.Find(out)
	switch {
	case err == nil:
		t.Errorf("%s of %s passes", p.Test, p.Package)
	case !failed: // it did not build, or its end was no test's word
		t.Errorf("%s of %s did not fail by itself:\n%.4000s", p.Test, p.Package, out)
	case said == nil:
		t.Errorf("%s of %s failed for another reason than %q:\n%.4000s", p.Test, p.Package, p.Says, out)
	default:
		return strings.Join(strings.Fields(string(said)), " "), true
	}
	return "", false
}

// TestMutants tries MUTANTS of them, chosen by SEED when that is not all.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	seed, chance := drill.Seed(t)
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(drill.Size(t, "MUTANTS", 2), len(all))]
	caught := 0
	for _, m := range all {
		overlay := m.overlay(t, root)
		bad := overlay == ""
		for _, p := range m.Proofs {
			if bad {
				break
			}
			said, ok := p.catches(t, root, overlay)
			if bad = !ok; ok {
				drill.Line("mutants removed=%s caught_by=%s %s: %s", m.Name, p.Package, p.Test, said)
			}
		}
		if bad || len(m.Proofs) == 0 {
			t.Errorf("the mutant %s survived", m.Name)
			continue
		}
		caught++
	}
	drill.Line("mutants caught=%d/%d seed=%d", caught, len(all), seed)
}
