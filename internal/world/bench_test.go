package world_test

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/world"
)

// One message from push to fate over real sockets, model time none; console, so
// that nothing is left to deliver.
func BenchmarkMessage(b *testing.B) {
	w := world.Start(b, world.Options{Direct: true})
	w.Create(b, "a1", "")
	w.Say(b, "a1", "external:console:cli:dm:cli:cli", "say: warm")
	durable, lazy, ops := w.Registry.Stats()
	for i := 0; b.Loop(); i++ {
		w.Say(b, "a1", "external:console:cli:dm:cli:cli", fmt.Sprint("say: ", i))
	}
	d, l, o := w.Registry.Stats()
	b.ReportMetric(float64(d-durable)/float64(b.N), "fsyncs/op")
	b.ReportMetric(float64(l-lazy)/float64(b.N), "lazy/op")
	b.ReportMetric(float64(o-ops)/float64(b.N), "tx/op")
}
