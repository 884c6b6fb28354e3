package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// goTest runs `go test` in the current directory, which must be the source, and returns
// its output. A test that fails is an error: its figure is not valid.
func goTest(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// countPerMessage returns what TestCostOfAMessage counts for one message, such as fsyncs.
func countPerMessage(ctx context.Context, what string) (float64, error) {
	out, err := goTest(ctx, "-v", "-run", "^TestCostOfAMessage$", "./internal/testing/world")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(regexp.QuoteMeta(what) + ` per message: ([0-9.]+)`).FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("TestCostOfAMessage says nothing of %s", what)
	}
	return strconv.ParseFloat(m[1], 64)
}

var (
	benchmarkResult = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	benchmarkValue  = regexp.MustCompile(`([0-9.]+) (\S+)`)
)

// benchmarkTimes answers the medians of the benchmarks of a package that match, by name, in ns; what else a benchmark
// reports is behind its name and a blank, such as allocs/op.
func benchmarkTimes(ctx context.Context, dir, match string, runs int, each string) (map[string]float64, error) {
	out, err := goTest(ctx, "-run", "^$", "-bench", match, "-benchtime", each, "-count", strconv.Itoa(runs), dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]float64{}
	for _, m := range benchmarkResult.FindAllStringSubmatch(out, -1) {
		for _, pair := range benchmarkValue.FindAllStringSubmatch(m[2], -1) {
			v, err := strconv.ParseFloat(pair[1], 64)
			if err != nil {
				return nil, err
			}
			name := m[1]
			if pair[2] != "ns/op" {
				name += " " + pair[2]
			}
			all[name] = append(all[name], v)
		}
	}
	medians := map[string]float64{}
	for name, list := range all {
		slices.Sort(list)
		medians[name] = list[len(list)/2]
	}
	return medians, nil
}
