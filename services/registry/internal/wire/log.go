package wire

import registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"

// Log is the log of each agent, for people.
type Log interface {
	Append(id string, lines []*registryv1.LogLine)
}

// LogAgent writes one line to an agent's log.
func LogAgent(l Log, id, text string) {
	l.Append(id, []*registryv1.LogLine{{Level: "INFO", Text: text}})
}
