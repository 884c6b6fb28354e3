package main

import (
	"flag"
	"regexp"
	"strings"
	"testing"
)

// The help shows each flag once, in a group, with two dashes.
func TestHelpFlags(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"--help"}, func(string) string { return "" }, &out); err == nil {
		t.Fatal("--help is no command line to run")
	}
	if single := regexp.MustCompile(`(?m)^\s+-[a-z]`).FindString(out.String()); single != "" {
		t.Errorf("one dash: %q", single)
	}
	f := defined()
	n := 0
	f.VisitAll(func(option *flag.Flag) {
		n++
		if got := len(regexp.MustCompile(`(?m)^  --`+option.Name+`( |$)`).FindAllString(out.String(), -1)); got != 1 {
			t.Errorf("--%s is shown %d times", option.Name, got)
		}
	})
	if n < 14 {
		t.Errorf("%d flags", n)
	}
}

// defined are the flags of the command line.
func defined() *flag.FlagSet {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	o := options{}
	var level, name string
	var version bool
	o.define(f, &level, &name, &version)
	return f
}
