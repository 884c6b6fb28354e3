package core

import (
	"errors"
	"io/fs"
	"time"

	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/store/postgres/story"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// LogAgent writes one line to the agent's log; the log is for people and its
// failure stops nothing.
func (c *Core) LogAgent(id, text string) {
	c.AppendLog(id, []*registryv1.LogLine{{Level: "INFO", Text: text}})
}

// AppendLog writes what a worker said to the agent's log: logs/agent.log, or rows where
// there is no directory.
func (c *Core) AppendLog(id string, lines []*registryv1.LogLine) {
	if len(lines) == 0 || c.agentLogs == nil {
		return
	}
	if c.Shared != nil {
		now, out := time.Now(), make([]story.Line, len(lines))
		for i, l := range lines {
			out[i] = story.Line{At: now, Level: l.GetLevel(), Text: c.agentLogs.Clean(l.GetText())}
		}
		c.Shared.Story.Say(id, out...)
		return
	}
	dir, err := c.Home.Agent(id)
	if err != nil {
		return
	}
	out := make([]agentlog.Line, len(lines))
	for i, l := range lines {
		out[i] = agentlog.Line{Level: agentlog.Level(l.GetLevel()), Text: l.GetText()}
	}
	c.agentLogs.Later(dir.Logs(), func(err error) {
		if !errors.Is(err, fs.ErrNotExist) { // a removed directory is not brought back
			c.Log.Warn("agent log not written", "agent_id", id, "error", err)
		}
	}, out...)
}
