//go:build proof

package mutants_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/proofs/drill"
)

// A mutant replaces Old, which is in File once, by New. Tests of Contract notice it in
// both engines.
type mutant struct {
	Name, File, Old, New string
	Contract, Proofs     []proof
}

// A proof is a test, and the words with which it must fail.
type proof struct{ Package, Test, Says string }

// engines are the packages whose tests run the contract.
var engines = []string{"internal/store/sqlite", "internal/store/postgres"}

// size makes the proofs that are drills big enough to notice, and no bigger.
var size = []string{"SEED=5", "SEEDS=2", "MESSAGES=100", "N=40"}

// TestMutants tries all of them, or MUTANTS of them chosen by SEED.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	check(t, err)
	data, err := os.ReadFile("testdata/mutants.json")
	check(t, err)
	var all []mutant
	check(t, json.Unmarshal(data, &all))
	for _, m := range all { // those that are not tried too
		m.changed(t, root)
	}
	seed, chance := drill.Seed(t)
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	there := len(all)
	if os.Getenv("MUTANTS") != "all" {
		all = all[:min(drill.Size(t, "MUTANTS", 1), there)]
	}
	var mu sync.Mutex
	caught := 0
	t.Run("of", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				m.try(t, root)
				mu.Lock()
				defer mu.Unlock()
				if !t.Failed() {
					caught++
				}
			})
		}
	})
	drill.Line("mutants caught=%d/%d of=%d seed=%d", caught, len(all), there, seed)
}

// try runs the proofs of a mutant, those of one test together.
func (m mutant) try(t *testing.T, root string) {
	overlay := m.overlay(t, root)
	if t.Failed() {
		return
	}
	proofs := slices.Clone(m.Proofs)
	for _, p := range m.Contract {
		for _, e := range engines {
			proofs = append(proofs, proof{e, p.Test, p.Says})
		}
	}
	if len(proofs) == 0 {
		t.Fatal("no proof")
	}
	if slices.ContainsFunc(proofs, func(p proof) bool { return strings.Contains(p.Package, "postgres") }) {
		need.Postgres(t)
	}
	tests := map[[2]string][]proof{}
	for _, p := range proofs {
		top, _, _ := strings.Cut(p.Test, "/")
		key := [2]string{p.Package, top}
		tests[key] = append(tests[key], p)
	}
	for _, group := range tests {
		outputs := run(t, root, overlay, group)
		for _, p := range group {
			if said, ok := p.judge(t, outputs); ok {
				drill.Line("%s: caught by %s %s: %s", m.Name, p.Package, p.Test, said)
			}
		}
	}
}

// changed is the source with the change.
func (m mutant) changed(t *testing.T, root string) []byte {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		t.Errorf("%s: %v", m.Name, err)
	} else if n := bytes.Count(src, []byte(m.Old)); n != 1 {
		t.Errorf("%s: the text to take out is %d times in %s", m.Name, n, m.File)
	}
	return bytes.Replace(src, []byte(m.Old), []byte(m.New), 1)
}

// overlay writes a mutant next to the tree and answers the file that tells go.
func (m mutant) overlay(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): changed}})
	check(t, err)
	check(t, os.WriteFile(changed, m.changed(t, root), 0o600))
	check(t, os.WriteFile(overlay, spec, 0o600))
	return overlay
}

// output is what a test printed, and how it ended: pass, fail, or nothing.
type output struct{ text, end string }

// run runs the tests of a group, which are all below one, and answers what each printed;
// under "" is what the build and the program printed.
func run(t *testing.T, root, overlay string, group []proof) map[string]output {
	t.Helper()
	var pattern string
	top, _, _ := strings.Cut(group[0].Test, "/")
	var below []string
	for _, p := range group {
		if _, sub, ok := strings.Cut(p.Test, "/"); ok {
			below = append(below, regexp.QuoteMeta(sub))
		}
	}
	if pattern = "^" + top + "$"; len(below) > 0 {
		pattern += "/^(" + strings.Join(below, "|") + ")$"
	}
	test := exec.Command("go", "test", "-tags=proof", "-json", "-vet=off", "-overlay", overlay, "-count=1", "-timeout=2m", "-run", pattern, "./"+group[0].Package)
	test.Dir, test.Env = root, append(os.Environ(), size...)
	var stderr bytes.Buffer
	test.Stderr = &stderr
	raw, _ := test.Output() // that it fails is what is wanted
	outputs := map[string]output{"": {text: stderr.String()}}
	for line := range bytes.Lines(raw) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			e.Output = string(line)
		}
		o := outputs[e.Test]
		o.text += e.Output
		if e.Action == "pass" || e.Action == "fail" {
			o.end = e.Action
		}
		outputs[e.Test] = o
	}
	return outputs
}

// judge tells whether a proof failed as it must, and answers its words.
func (p proof) judge(t *testing.T, outputs map[string]output) (string, bool) {
	t.Helper()
	says, err := regexp.Compile(p.Says)
	check(t, err)
	out := outputs[p.Test]
	said := says.FindString(out.text)
	switch {
	case out.end == "" || strings.Contains(out.text, "panic: "):
		t.Errorf("%s of %s did not end:\n%.4000s%.4000s", p.Test, p.Package, outputs[""].text, out.text)
	case out.end == "pass":
		t.Errorf("%s of %s passes", p.Test, p.Package)
	case said == "":
		t.Errorf("%s of %s failed for another reason than %q:\n%.4000s", p.Test, p.Package, p.Says, out.text)
	default:
		return strings.Join(strings.Fields(said), " "), true
	}
	return "", false
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
