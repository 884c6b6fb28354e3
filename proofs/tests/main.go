// Command tests runs and selects tests by name, and fails when a name matches nothing: a
// renamed test must not leave a proof empty, nor a list of exceptions longer than needed.
//
//	tests run TARGET PATTERN DIR...    runs the tests of the packages that PATTERN names
//	tests list [-but RE] [-skip RE] PACKAGE...    prints the packages without those of -but
//
// Each alternative of PATTERN must have passed at least once and each package must have
// passed a test; run prints one line of figures. Each alternative of -but must match a
// package and each of -skip a test of the packages that are printed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs one of the commands and answers with the exit code: 1 when a test failed or a
// name matches nothing, 2 for wrong arguments.
func Main(args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) >= 4 && args[0] == "run":
		err = run(args[1], args[2], args[3:], stdout)
	case len(args) >= 2 && args[0] == "list":
		err = list(args[1:], stdout, stderr)
	default:
		err = usage("name a command - tests run TARGET PATTERN DIR... or tests list PACKAGE...")
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "Error: %v\n", err)
	if errors.As(err, new(usage)) {
		return 2
	}
	return 1
}

// usage is an error of the arguments.
type usage string

func (u usage) Error() string { return string(u) }

// An event is a line of `go test -json`.
type event struct{ Action, Package, Test, Output string }

// figures is what a test adds to the line with t.Logf("figures: key=value").
var figures = regexp.MustCompile(`^ *[A-Za-z0-9_]*_test\.go:[0-9]+: figures:(.*)\n$`)

func run(target, pattern string, dirs []string, stdout io.Writer) error {
	args := []string{"test", "-tags=proof,grpcnotrace", "-json", "-count=1", "-run", "^(" + pattern + ")$"}
	for _, d := range dirs {
		args = append(args, "./"+d)
	}
	cmd := exec.Command("go", args...) //nolint:gosec // the Makefile names the tests; no shell
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	raw, failed := cmd.Output()
	var text, added strings.Builder
	var passed []string
	packages := map[string]bool{} // whether a test of it passed
	skipped := 0
	for line := range bytes.Lines(raw) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		if m := figures.FindStringSubmatch(e.Output); m != nil {
			added.WriteString(m[1])
		}
		if e.Package != "" {
			packages[e.Package] = packages[e.Package] || e.Test != "" && e.Action == "pass"
		}
		switch {
		case e.Test == "":
		case e.Action == "skip":
			skipped++
		case e.Action == "pass" && !strings.Contains(e.Test, "/"):
			passed = append(passed, e.Test)
		}
	}
	if failed != nil {
		return fmt.Errorf("%s: %w\n%s%s", target, failed, &text, &stderr)
	}
	missing, err := unmatched(alternatives("^("+pattern+")$"), passed)
	if err != nil {
		return err
	}
	for name, ok := range packages {
		if !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("%s: no test passed of: %s - correct the names in the Makefile\n%s", target, strings.Join(missing, ", "), &text)
	}
	fmt.Fprintf(stdout, "%s tests=%d skipped=%d%s violations=0\n", target, len(passed), skipped, &added)
	return nil
}

func list(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("tests list", flag.ContinueOnError)
	flags.SetOutput(stderr)
	but := flags.String("but", "", "packages to leave out")
	skip := flags.String("skip", "", "tests that will be skipped")
	if err := flags.Parse(args); err != nil {
		return usage(err.Error())
	}
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, flags.Args()...)...)
	cmd.Stderr = stderr
	raw, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	leave, err := regexp.Compile(*but)
	if err != nil {
		return usage(err.Error())
	}
	var all, tests []string
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p.ImportPath)
		if *but != "" && leave.MatchString(p.ImportPath) {
			continue
		}
		fmt.Fprintln(stdout, p.ImportPath)
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			names, err := declared(filepath.Join(p.Dir, f))
			if err != nil {
				return err
			}
			tests = append(tests, names...)
		}
	}
	skipped := alternatives(*skip)
	for i, s := range skipped {
		skipped[i], _, _ = strings.Cut(s, "/") // what stands behind it names subtests
	}
	for _, of := range []struct {
		name      string
		patterns  []string
		available []string
	}{{"BUT", alternatives(*but), all}, {"SKIP", skipped, tests}} {
		missing, err := unmatched(of.patterns, of.available)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("%s matches nothing with: %s - correct the list", of.name, strings.Join(missing, ", "))
		}
	}
	return nil
}

// declared are the names of the tests, fuzz targets and examples in a file.
func declared(path string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read tests: %w", err)
	}
	var names []string
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			names = append(names, fn.Name.Name)
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return !isTest.MatchString(n) }), nil
}

var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)`)

// unmatched are the patterns that match none of the names.
func unmatched(patterns, names []string) ([]string, error) {
	var missing []string
	for _, p := range patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, usage(err.Error())
		}
		if !slices.ContainsFunc(names, re.MatchString) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// alternatives spells out the choices of a pattern: ^(A|B)$ is ^(A)$ and ^(B)$. A group
// that is repeated or optional is left as it is.
func alternatives(pattern string) []string {
	if pattern == "" {
		return nil
	}
	var out []string
	for _, part := range split(pattern) {
		open, end := group(part)
		choices := split(part[open:end])
		if len(choices) < 2 {
			out = append(out, part)
			continue
		}
		for _, c := range choices {
			out = append(out, alternatives(part[:open]+c+part[end:])...)
		}
	}
	return out
}

// split divides a pattern at each | outside of groups and classes.
func split(pattern string) []string {
	var parts []string
	from := 0
	walk(pattern, func(i, depth int) bool {
		if depth == 0 && pattern[i] == '|' {
			parts, from = append(parts, pattern[from:i]), i+1
		}
		return true
	})
	return append(parts, pattern[from:])
}

// group is where the inside of the first group with choices begins and ends; two equal
// numbers say that there is none.
func group(pattern string) (open, end int) {
	start := 0
	walk(pattern, func(i, depth int) bool {
		switch {
		case pattern[i] == '(' && depth == 1:
			start = i + 1
		case pattern[i] == ')' && depth == 0:
			once := i+1 == len(pattern) || !strings.ContainsRune("*+?{", rune(pattern[i+1]))
			if once && len(split(pattern[start:i])) > 1 {
				open, end = start, i
				return false
			}
		}
		return true
	})
	return open, end
}

// walk calls see for each byte that is neither escaped nor in a class, with the number of
// groups that are open behind it, until see answers false.
func walk(pattern string, see func(i, depth int) bool) {
	depth, class := 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
			continue
		case class:
			class = c != ']'
			continue
		case c == '[':
			class = true
			continue
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
		if !see(i, depth) {
			return
		}
	}
}
