//go:build proof

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/proofs/topology"
)

// TestScripts runs the scenarios: real commands against the real services, in the
// topology that the variable TOPOLOGY names; SCRIPTS is a regular expression of those
// that are run, all without it.
func TestScripts(t *testing.T) {
	runSuite(t, topology.Chosen(t), os.Getenv("SCRIPTS"))
}

// A few of the scripts in the other two topologies, each time the tests are run; all of
// them: make e2e TOPOLOGY=split, or cluster.
func TestScriptsSplit(t *testing.T)   { few(t, topology.Split) }
func TestScriptsCluster(t *testing.T) { few(t, topology.Cluster) }

func few(t *testing.T, kind topology.Kind) {
	t.Parallel()
	kind.Check(t)
	runSuite(t, kind, "run|talk|failure")
}

// suite is the scripts in one topology, and what came of them.
type suite struct {
	kind     topology.Kind
	database func(t testing.TB) string

	mu      sync.Mutex
	passed  []string
	failed  []string
	skipped []string // with the reason
	ends    []string // of the passed those that ended early, with the reason
	left    int      // commands of the passed that were not run here
}

// runSuite runs the chosen scripts and prints one line of figures.
func runSuite(t *testing.T, kind topology.Kind, chosen string) {
	s := &suite{kind: kind, database: func(testing.TB) string { return "" }}
	if kind == topology.Cluster {
		s.database = pgtest.Start(t).Database
	}
	root, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(root)
		s.print()
	})
	if err := os.Chmod(root, 0o711); err != nil { // the services of split pass through it
		t.Fatal(err)
	}
	testscript.RunT(script{t, s, ""}, testscript.Params{
		Files:       scripts(t, chosen),
		WorkdirRoot: root,
		Setup:       s.setup,
		Condition: func(cond string) (bool, error) {
			if cond != string(topology.Embedded) && cond != string(topology.Split) && cond != string(topology.Cluster) {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			return cond == string(kind), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": serve, "unserve": unserve, "own": own, "golden": golden, "try": try, "await": await},
	})
}

// scripts are the files that are run.
func scripts(t *testing.T, chosen string) []string {
	t.Helper()
	rule, err := regexp.Compile("^(" + cmp.Or(chosen, ".*") + `)\.txtar$`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(path string) bool { return !rule.MatchString(filepath.Base(path)) })
	if len(all) == 0 {
		t.Fatalf("no script is called %s", chosen)
	}
	return all
}

// script is one script as a test.
type script struct {
	*testing.T
	suite *suite
	name  string
}

func (s script) Verbose() bool { return testing.Verbose() }

func (s script) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) {
		t.Cleanup(func() { s.suite.ended(t, name) })
		f(script{t, s.suite, name})
	})
}

func (s script) Skip(args ...any) {
	s.suite.mu.Lock()
	s.suite.skipped = append(s.suite.skipped, s.name+": "+strings.Trim(fmt.Sprint(args...), "[]"))
	s.suite.mu.Unlock()
	need.Inapplicable(s.T, strings.Trim(fmt.Sprint(args...), "[]"))
}

func (s *suite) ended(t *testing.T, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.Failed():
		s.failed = append(s.failed, name)
	case !t.Skipped():
		s.passed = append(s.passed, name)
		text, err := os.ReadFile(filepath.Join(here, "testdata", "script", name+".txtar"))
		if err != nil {
			t.Error(err)
		}
		left, why := s.leftOut(string(text))
		s.left += left
		if why != "" {
			s.ends = append(s.ends, name+": "+why)
		}
	}
}

// guard is a line that is for some topologies only; the last group is the reason of a
// script that ends there.
var guard = regexp.MustCompile(`^\[(!?)(embedded|split|cluster)\] (?:stop '(.*)')?`)

// leftOut counts the commands of a script that this topology does not run, and answers
// why it ended early if it did.
func (s *suite) leftOut(script string) (left int, why string) {
	for line := range strings.Lines(script) {
		m := guard.FindStringSubmatch(line)
		runs := m == nil || (m[2] == string(s.kind)) == (m[1] == "")
		switch {
		case strings.HasPrefix(line, "-- "):
			return left, why
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case m != nil && m[3] != "":
			if runs && why == "" {
				why = m[3]
			}
		case why != "" || !runs:
			left++
		}
	}
	return left, why
}

func (s *suite) print() {
	fmt.Printf("e2e topology=%s scripts=%d passed=%d failed=%d skipped=%d ended_early=%d lines_left_out=%d\n", s.kind,
		len(s.passed)+len(s.failed)+len(s.skipped), len(s.passed), len(s.failed), len(s.skipped), len(s.ends), s.left)
	for _, why := range slices.Sorted(slices.Values(s.skipped)) {
		fmt.Println("e2e skipped", why)
	}
	for _, why := range slices.Sorted(slices.Values(s.ends)) {
		fmt.Println("e2e ended early", why)
	}
}

// golden is the file that holds for this topology: its own one only where it has to say
// something else than the others.
func (s *suite) golden(name, got string) string {
	own := filepath.Join(string(s.kind), name)
	if *update && s.kind != topology.Embedded {
		if goldenSays(name) == got {
			return name
		}
		if err := os.MkdirAll(filepath.Join(here, "testdata", "golden", string(s.kind)), 0o755); err != nil {
			return err.Error()
		}
		return own
	}
	if goldenSays(own) != "" {
		return own
	}
	return name
}

// goldenSays is the text of a golden file, nothing when there is none.
func goldenSays(name string) string {
	b, err := os.ReadFile(filepath.Join(here, "testdata", "golden", name))
	if err != nil {
		return ""
	}
	return string(b)
}

// site is the services of one script.
type site struct {
	*topology.Site
	t         testing.TB
	suite     *suite
	databases map[string]string // by home
}

type siteKey struct{}

// setup gives a script a home, and the programs as the person has them who runs it.
func (s *suite) setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	t := env.T().(script)
	x := &site{t: t, suite: s, databases: map[string]string{}}
	if s.kind == topology.Split { // both the operator and the registry's user write here
		if err := os.Chmod(env.WorkDir, 0o777); err != nil {
			return err
		}
	}
	x.Site = topology.New(t, home, topology.Options{
		Kind: s.kind, Programs: built(t), Root: filepath.Join(env.WorkDir, ".e2e"),
		Flags: []string{"--grace", "1s"}, // the end of a script does not wait for what it left running
	})
	env.Values[siteKey{}] = x
	dir := x.Bin(t)
	env.Setenv("THECLAW_HOME", home)
	env.Setenv("PATH", dir+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("BUILT", dir)
	return nil
}

// serve starts the services and returns when they all serve.
func serve(ts *testscript.TestScript, _ bool, _ []string) {
	x := ts.Value(siteKey{}).(*site)
	home := ts.Getenv("THECLAW_HOME")
	if x.databases[home] == "" {
		x.databases[home] = x.suite.database(x.t)
	}
	x.Move(home, x.databases[home])
	x.Up(x.t)
}

// unserve ends the services in order and waits until they are gone.
func unserve(ts *testscript.TestScript, _ bool, _ []string) {
	if bad := ts.Value(siteKey{}).(*site).Down(); bad != "" {
		ts.Fatalf("%s", bad)
	}
}

// own gives files that a script made in the home to the user of the registry.
func own(ts *testscript.TestScript, _ bool, args []string) {
	x := ts.Value(siteKey{}).(*site)
	for _, path := range args {
		x.Own(x.t, ts.MkAbs(path))
	}
}

// try runs a program whose exit code depends on the machine.
func try(ts *testscript.TestScript, _ bool, args []string) {
	if err := ts.Exec(args[0], args[1:]...); err != nil {
		ts.Logf("%v", err)
	}
}

// await runs a program until a line of what it prints matches: for what comes by itself.
func await(ts *testscript.TestScript, _ bool, args []string) {
	rule := regexp.MustCompile("(?m)" + args[0])
	for end := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		try(ts, false, args[1:])
		if rule.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s never prints %s", strings.Join(args[1:], " "), args[0])
		}
	}
}

// golden compares a stream of the last command with a golden file, without what
// varies: golden stdout NAME. Where a topology has a file of that name of its own, that
// one counts.
func golden(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: golden stdout|stderr NAME")
	}
	got := normal(ts.ReadFile(args[0]), ts.Getenv("WORK"))
	if diff := goldenDiff(ts.Value(siteKey{}).(*site).suite.golden(args[1], got), got); diff != "" {
		ts.Fatalf("%s differs (-want +got; go test -update writes it):\n%s", args[1], diff)
	}
}
