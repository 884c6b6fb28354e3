package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/fault"
)

// Each flag with each wrong value: an error of usage that names it, without the bytes that
// are wrong and without words of package flag. Free text such as a path is wrong only where
// no path can be meant.
func TestBadInput(t *testing.T) {
	huge := strings.Repeat("A", 1<<20)
	never := []string{"1\x00", "1\xff", "1\n2", huge}
	free := map[string]bool{"home": true, "tls": true, "metrics-listen": true}
	f := defined()
	cases := 0
	check := func(what string, args ...string) {
		t.Helper()
		cases++
		_, err := parse(args, func(name string) string { return map[string]string{"HOME": "/nonexistent"}[name] }, io.Discard)
		if err == nil || fault.ExitCode(err) != 2 && fault.From(err).Reason != fault.InvalidArgument {
			t.Errorf("%s: %v", what, err)
			return
		}
		line := fault.Line(err)
		switch {
		case len(line) > 500, !utf8.ValidString(line), strings.ContainsFunc(line, unicode.IsControl), !strings.Contains(line, " - "):
			t.Errorf("%s: %.300q", what, line)
		case strings.Contains(line, "parse error"), strings.Contains(line, "strconv"), strings.Contains(line, "invalid value"), strings.Contains(line, "not defined"):
			t.Errorf("%s: text of a library: %s", what, line)
		}
	}
	f.VisitAll(func(option *flag.Flag) {
		values := never
		if !free[option.Name] {
			values = append([]string{"x y", "No/Such", "-1"}, never...)
		}
		for _, v := range values {
			check(fmt.Sprintf("--%s=%.10q", option.Name, v), "runner", "--"+option.Name+"="+v)
		}
		if b, ok := option.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
			check("--"+option.Name+" missing", "runner", "--"+option.Name)
		}
	})
	for _, word := range append([]string{"", "x y", "No/Such", "-1", "--nosuch", "--"}, never...) {
		check(fmt.Sprintf("SERVICE=%.10q", word), word)
	}
	check("two services", "registry", "runner")
	fmt.Fprintf(t.Output(), "badinput program=agentd cases=%d\n", cases)
}
