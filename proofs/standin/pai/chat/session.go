package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"
)

// message is a line of a session.
type message struct {
	Role       string `json:"role"`
	Name       string `json:"name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Content    any    `json:"content"`
	ToolCalls  []call `json:"tool_calls,omitempty"`
	Timestamp  string `json:"timestamp,omitempty"`
}

type call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// load reads a session; a missing one is empty.
func load(path string) ([]message, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &failure{exitFile, "Failed to read file", details{{"path", path}, {"error", err.Error()}}}
	}
	var out []message
	for n, line := range bytes.Split(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var m message
		problem := ""
		if err := json.Unmarshal(line, &m); err != nil {
			problem = err.Error()
		} else if m.Role == "" || m.Content == nil {
			problem = "Missing required fields: role and content"
		}
		if problem != "" {
			return nil, &failure{exitFile, "Malformed JSONL at line " + itoa(n+1), details{{"path", path}, {"line", n + 1}, {"error", problem}}}
		}
		out = append(out, m)
	}
	return out, nil
}

// save appends what is new in one write, all with the time of the end.
func save(path string, fresh []message) error {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	var b bytes.Buffer
	for _, m := range fresh {
		m.Timestamp = now
		b.Write(append(encode(m), '\n'))
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return &failure{exitFile, "Failed to write session", details{{"path", path}, {"error", err.Error()}}}
	}
	defer f.Close()
	_, err = f.Write(b.Bytes())
	return err
}
