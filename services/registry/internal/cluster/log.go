package cluster

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Log is the log of each agent, in rows. It is for people, and its failure stops nothing.
type Log struct {
	lines store.LogLines
	clean *agentlog.Log // nil writes none
}

// Append writes lines of a worker.
func (l *Log) Append(id string, lines []*registryv1.LogLine) {
	if len(lines) == 0 || l.clean == nil {
		return
	}
	now, out := time.Now(), make([]store.LogLine, len(lines))
	for i, line := range lines {
		out[i] = store.LogLine{At: now, Level: line.GetLevel(), Text: l.clean.Clean(line.GetText())}
	}
	l.lines.Say(id, out...)
}

// Tail returns the newest lines, at most limit, in their order.
func (l *Log) Tail(ctx context.Context, id string, limit int) ([]string, error) {
	l.lines.Flush()
	lines, err := l.lines.Read(ctx, id, limit)
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = agentlog.Text(agentlog.Line{At: line.At, Level: agentlog.Level(line.Level), Text: line.Text})
	}
	return out, err
}
