// Package counted owns the figures that tests of the source print: what is counted in a
// message, and Go benchmarks of two things side by side.
//
// It runs `go test` in the current folder, which is the source's, and reads what that
// says. A test that fails is an error: its figure is no figure.
package counted

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func test(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// PerMessage answers what TestCostOfAMessage counts of a message, such as fsyncs.
func PerMessage(ctx context.Context, what string) (float64, error) {
	out, err := test(ctx, "-v", "-run", "^TestCostOfAMessage$", "./internal/testing/world")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(regexp.QuoteMeta(what) + ` per message: ([0-9.]+)`).FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("TestCostOfAMessage says nothing of %s", what)
	}
	return strconv.ParseFloat(m[1], 64)
}

var result = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)

// Times answers the medians of the benchmarks of a package that match, by name, in ns.
func Times(ctx context.Context, dir, match string, runs int, each string) (map[string]float64, error) {
	out, err := test(ctx, "-run", "^$", "-bench", match, "-benchtime", each, "-count", strconv.Itoa(runs), dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]float64{}
	for _, m := range result.FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		all[m[1]] = append(all[m[1]], v)
	}
	medians := map[string]float64{}
	for name, list := range all {
		slices.Sort(list)
		medians[name] = list[len(list)/2]
	}
	return medians, nil
}
