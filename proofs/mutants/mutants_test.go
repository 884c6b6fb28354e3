// Package mutants_test proves the proofs: ten things that hold the promises up are
// taken out of the source one by one, and each time a test must notice.
//
// A mutant is a change of text, built with `go test -overlay`, so that the tree is
// never touched. One whose old text is not found fails too: it would prove nothing.
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

// A mutant replaces Old, which stands once in File, by New; the tests of Package
// that match Run must fail.
type mutant struct{ Name, File, Old, New, Package, Run string }

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// catch builds and runs a mutant and answers the test that caught it.
func catch(t *testing.T, root string, m mutant) string {
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
	test := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-failfast", "-timeout=2m", "-v", "-run", m.Run, "./"+m.Package)
	test.Dir = root
	out, err := test.CombinedOutput()
	if err == nil {
		t.Errorf("%s survived: %s of %s pass without %q", m.Name, m.Run, m.Package, m.Old)
		return ""
	}
	found := failed.FindAllSubmatch(out, -1)
	if len(found) == 0 { // it did not build, or its end was no test's word
		t.Errorf("%s: no test failed:\n%s", m.Name, out)
		return ""
	}
	name := string(found[0][1])
	for _, f := range found[1:] {
		if strings.HasPrefix(string(f[1]), name+"/") {
			name = string(f[1])
		}
	}
	return name
}

// TestMutants tries MUTANTS of them, chosen by SEED when that is not all.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("each mutant is built")
	}
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
	var by []string
	for _, m := range all {
		if test := catch(t, root, m); test != "" {
			caught++
			by = append(by, m.Name+": "+test)
		}
	}
	drill.Line("mutants caught=%d/%d (%s) seed=%d", caught, len(all), strings.Join(by, ", "), seed)
}
