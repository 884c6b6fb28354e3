package main

import (
	"context"
	"time"
)

// toolsAlone measures single tools by the Go benchmarks of their packages, each against what it is to be compared
// with, in one run.
func (r *run) toolsAlone(ctx context.Context) error {
	const tools = "./services/runner/internal/toolset"
	times := map[string]float64{}
	for _, b := range []struct {
		dir, match, each string
	}{
		{tools, "^Benchmark(Set|Reads)$", "2x"},
		{tools, "^BenchmarkSet$", "0.5s"},
		{tools + "/file", "^Benchmark(Read|Grep)$", "0.5s"},
		{tools + "/mcp", "^BenchmarkCall$", "0.5s"},
		{tools + "/mcp", "^BenchmarkEnded$", "20x"},
		{tools + "/web", "^BenchmarkPage$", "0.5s"},
		{"./internal/sandbox", "^BenchmarkSpawn$/^full$", "0.5s"},
		{"./internal/egress/proxy", "^BenchmarkCopy$", "2x"},
	} {
		got, err := benchmarkTimes(ctx, b.dir, b.match, r.size(5, 3), b.each)
		if err != nil {
			return err
		}
		for name, v := range got {
			times[name] = v
		}
	}
	r.Below("8 reads of 200 ms in one answer / one of them", times["BenchmarkReads parallel/one"], 1.5)
	r.AtLeast("the same one after the other, the control", times["BenchmarkReads serial/one"], 6)
	r.Below("read of 64 KiB / a program in the sandbox", times["BenchmarkRead"]/times["BenchmarkSpawn/full"], 0.2)
	r.AtMost("grep in 31 MiB, 2,000 files", time.Duration(times["BenchmarkGrep"]), time.Second)
	r.AtMost("set of 120 tools under 9 layers", time.Duration(times["BenchmarkSet"]), time.Millisecond)
	r.Below("call of an MCP server in the sandbox / the SDK alone", times["BenchmarkCall/ours"]/times["BenchmarkCall/sdk"], 1.5)
	r.AtMost("call of an MCP server that ends in it, until it has failed", time.Duration(times["BenchmarkEnded"]), 100*time.Millisecond)
	r.AtMost("page of 216 KB as Markdown", time.Duration(times["BenchmarkPage/article"]), 100*time.Millisecond)
	r.AtMost("page that is nested 50,000 deep", time.Duration(times["BenchmarkPage/nested"]), 200*time.Millisecond)
	r.AtLeast("64 MiB through the list of hosts / without it", times["BenchmarkCopy/direct"]/times["BenchmarkCopy/proxy"], 0.4)
	return nil
}
