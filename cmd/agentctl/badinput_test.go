//go:build proof

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/internal/filetree"
)

// badValues are values that no typed flag and no agent id has. They are passed in this
// process: an operating system passes neither NUL nor 1 MiB in one argument.
var badValues = []struct{ kind, value string }{
	{"empty", ""},
	{"unknown", "No/Such"},
	{"wrong type", "x y"},
	{"negative", "-1"},
	{"1 MiB", strings.Repeat("A", 1<<20)},
	{"NUL", "1\x00"},
	{"newline", "1\n2"},
	{"invalid UTF-8", "1\xff"},
}

// foreign is text of Go, gRPC or a parser, which says nothing to a person.
var foreign = regexp.MustCompile(`rpc error|strconv|unmarshal|yaml: |panic:|goroutine \d|runtime error|json: |parsing "`)

// hashOf is a hash of the names and bytes below dir.
func hashOf(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return "none"
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { _ = root.Close() }()
	must(t, filetree.Walk(t.Context(), root, ".", func(e filetree.Entry) error {
		_, _ = fmt.Fprintf(h, "%q %v\n", e.Path, e.Info.Mode())
		if !e.Info.Mode().IsRegular() {
			return nil
		}
		b, err := root.ReadFile(e.Path)
		_, _ = fmt.Fprintf(h, "%x\n", sha256.Sum256(b))
		return err
	}, func(_ string, err error) { t.Error(err) }))
	return hex.EncodeToString(h.Sum(nil))
}

// TestBadInput derives from the command tree a wrong value of every kind for each flag
// that has a type and for each agent id, and demands exit code 1 or 2, one error line with
// a way on, no text of a library, and a home that is unchanged. No service runs: a value
// that passes the command line would be reported as a missing service, which is a
// violation here. Flags and arguments that are free text are not in it.
func TestBadInput(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	must(t, os.MkdirAll(filepath.Join(home, "agents"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte("{}\n"), 0o600))
	before := hashOf(t, home)
	var commands, cases, violations int
	exits := map[int]int{}
	check := func(what string, args ...string) {
		t.Helper()
		cases++
		var out, errs bytes.Buffer
		begun := time.Now()
		code := Main(args, strings.NewReader(""), &out, &errs, func(name string) string {
			return map[string]string{"THECLAW_HOME": home, "HOME": home}[name]
		})
		took := time.Since(begun)
		exits[code]++
		text := errs.String()
		line := text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:]
		var why string
		switch {
		case code != 1 && code != 2:
			why = fmt.Sprintf("exit code %d", code)
		case !errorLine.MatchString(line):
			why = "no error line with a suggestion"
		case foreign.MatchString(text):
			why = "text of a library: " + foreign.FindString(text)
		case len(text) > 64<<10:
			why = fmt.Sprintf("an error of %d bytes", len(text))
		case strings.ContainsRune(text, 0), strings.Contains(text, "\xff"):
			why = "an error with the bytes of the input"
		case strings.Contains(text, "does not answer at"):
			why = "the value was accepted"
		}
		if why != "" {
			violations++
			t.Errorf("%s: %s (in %v)\n%.300q%.300q", what, why, took, text, out.String())
		}
	}
	for _, c := range leaves(tree()) {
		name := strings.Join(words(c), " ")
		if name == "help" || name == "thread" {
			continue // they take the words of other commands
		}
		commands++
		args := good[name]
		flags := func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind == "string" || kind == "stringArray" || kind == "stringSlice" || f.Name == "help" {
				return
			}
			for _, bad := range badValues {
				check(fmt.Sprintf("%s --%s %s", name, f.Name, bad.kind), append(append(words(c), args...), "--"+f.Name+"="+bad.value)...)
			}
			if f.NoOptDefVal == "" {
				check(fmt.Sprintf("%s --%s missing", name, f.Name), append(append(words(c), args...), "--"+f.Name)...)
			}
		}
		c.LocalFlags().VisitAll(flags)
		if i := slices.IndexFunc(args, func(a string) bool { return a == "a1" }); i >= 0 && takesID(c) {
			for _, bad := range badValues {
				with := slices.Clone(args)
				with[i] = bad.value
				check(fmt.Sprintf("%s ID %s", name, bad.kind), append(words(c), with...)...)
			}
		}
	}
	if after := hashOf(t, home); after != before {
		violations++
		t.Errorf("the home has changed: %s, %s before", after, before)
	}
	fmt.Fprintf(t.Output(), "badinput commands=%d cases=%d exit1=%d exit2=%d violations=%d\n", commands, cases, exits[1], exits[2], violations)
}

func takesID(c *cobra.Command) bool {
	return strings.Contains(c.Use, " ID") || strings.Contains(c.Use, "[ID")
}
