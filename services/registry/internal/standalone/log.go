package standalone

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/obs/agentlog"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Log is logs/agent.log of each agent. It is for people, and its failure stops nothing.
type Log struct {
	home  *agentdir.Home
	lines *agentlog.Log // nil writes none
	log   *slog.Logger
}

// Append writes what a worker said.
func (l *Log) Append(id string, lines []*registryv1.LogLine) {
	if len(lines) == 0 || l.lines == nil {
		return
	}
	dir, err := l.home.Agent(id)
	if err != nil {
		return
	}
	out := make([]agentlog.Line, len(lines))
	for i, line := range lines {
		out[i] = agentlog.Line{Level: agentlog.Level(line.GetLevel()), Text: line.GetText()}
	}
	l.lines.Later(dir.Logs(), func(err error) {
		if !errors.Is(err, fs.ErrNotExist) { // a removed directory is not brought back
			l.log.Warn("agent log not written", "agent_id", id, "error", err)
		}
	}, out...)
}

// Tail returns the newest lines, at most limit, in their order.
func (l *Log) Tail(_ context.Context, id string, limit int) ([]string, error) {
	dir, err := l.home.Agent(id)
	if err != nil {
		return nil, err
	}
	return agentlog.Tail(dir.Logs(), limit)
}

func (l *Log) forget(id string) {
	if dir, err := l.home.Agent(id); err == nil && l.lines != nil {
		_ = l.lines.Forget(dir.Logs())
	}
}
