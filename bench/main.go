// Command bench measures the runtime against its goals and against the limits of
// the machine it runs on, in one run and one directory.
//
//	bench -agentd PATH [-quick] [-out DIR] [-doc FILE]
//	bench -agentd PATH -curves DIR [-quick]
//	bench -agentd PATH -steady 10m
//
// It starts `agentd all` on a fresh home, drives it over gRPC, and prints one
// table: goal, measured, met or not. Model time is none: the offline driver
// answers. Ratios are to figures measured in the same run. With -curves it draws how
// figures grow instead, with -steady it holds a load for a while.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	agentd := f.String("agentd", ".bin/agentd", "the program to measure")
	quick := f.Bool("quick", false, "a small run, under a minute")
	out := f.String("out", "", "folder to write the table to; default: only print it")
	doc := f.String("doc", "", "page whose table of figures is replaced")
	drawn := f.String("curves", "", "draw curves into this folder")
	held := f.Duration("steady", 0, "hold 70 % of the most for so long")
	if err := f.Parse(args); err != nil {
		return 2
	}
	var t *table
	var err error
	switch {
	case *drawn != "":
		err = curves(context.Background(), *agentd, *drawn, *quick, stderr)
	case *held > 0:
		t, err = steady(context.Background(), *agentd, *held, stderr)
	default:
		t, err = measure(*agentd, *quick, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	if t == nil {
		return 0
	}
	fmt.Fprint(stdout, t)
	for _, write := range []struct {
		to string
		do func(string) error
	}{{*out, t.write}, {*doc, t.show}} {
		if write.to == "" {
			continue
		}
		if err := write.do(write.to); err != nil {
			fmt.Fprintln(stderr, "Error:", err)
			return 1
		}
	}
	return 0
}
