package thread_test

import (
	"testing"

	"github.com/theclaw/agents/internal/thread"
)

func BenchmarkAppendLine(b *testing.B) {
	e := thread.Event{ID: 42, CreatedAt: "2026-01-02T03:04:05.678Z", Source: thread.SourceSelf, Type: thread.TypeMessage, Content: `{"text":"what \"was\" said\n"}`}
	buf := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendLine(buf[:0])
	}
}
