package filter_test

import (
	"testing"

	"github.com/theclaw/agents/internal/filter"
)

func BenchmarkMatch(b *testing.B) {
	f, err := filter.Parse("source = 'self' AND type = 'message' AND NOT subtype LIKE 'draft%'")
	if err != nil {
		b.Fatal(err)
	}
	subtype := "final"
	e := filter.Row{ID: 1, CreatedAt: "2026-01-02T03:04:05.678Z", Source: "self", Type: "message", Subtype: &subtype}
	b.ReportAllocs()
	for b.Loop() {
		if !f.Match(e) {
			b.Fatal("not selected")
		}
	}
}
