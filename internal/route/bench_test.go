package route_test

import (
	"testing"

	"github.com/theclaw/agents/internal/route"
)

func BenchmarkOf(b *testing.B) {
	const content = `{"text":"hello","reply_context":{"channel_type":"external","channel_id":"telegram","peer_id":"bob"}}`
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := route.Of("external:tui:telegram:dm:bob:bob", content); err != nil {
			b.Fatal(err)
		}
	}
}
