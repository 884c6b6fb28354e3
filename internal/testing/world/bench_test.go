package world_test

import (
	"fmt"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// One message from push to fate over real sockets, model time none; console, so
// that nothing is left to deliver.
func BenchmarkMessage(b *testing.B) {
	w := world.Start(b, world.Options{Direct: true})
	w.Create(b, "a1", "")
	w.Say(b, "a1", "external:console:cli:dm:cli:cli", "say: warm")
	was := w.Engine.Stats()
	for i := 0; b.Loop(); i++ {
		w.Say(b, "a1", "external:console:cli:dm:cli:cli", fmt.Sprint("say: ", i))
	}
	is := w.Engine.Stats()
	b.ReportMetric(float64(is.Durable-was.Durable)/float64(b.N), "fsyncs/op")
	b.ReportMetric(float64(is.Lazy-was.Lazy)/float64(b.N), "lazy/op")
	b.ReportMetric(float64(is.Ops-was.Ops)/float64(b.N), "tx/op")
}
