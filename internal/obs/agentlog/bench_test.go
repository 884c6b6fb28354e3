package agentlog_test

import (
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/redact"
)

func BenchmarkAppend(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "logs")
	log := agentlog.New(redact.New(secret))
	for b.Loop() {
		if err := log.Append(dir, agentlog.Line{Text: "run end, 3 messages, 120 tokens"}); err != nil {
			b.Fatal(err)
		}
	}
}
