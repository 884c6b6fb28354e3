// Package session writes the session file of a conversation: the last prompt and
// its answer, one JSON message per line, for people and for tools that read the
// format.
//
//	sessions/threads%2Fpeers%2Fcli-cli.jsonl
//	{"role":"system","content":"..."}
//	{"role":"user","content":"..."}
//	{"role":"assistant","content":"...","tool_calls":[{"id","name","arguments":{}}]}
//	{"role":"tool","content":"...","name":"bash_exec","tool_call_id":"..."}
//
// A program that works with session files is given one that was rebuilt from the
// thread just before, and appends to it what it answered and did ([Prepare]).
//
// It promises that the file is replaced completely or not at all (S0-102), and
// that deleting it loses nothing: it is a projection of the thread and is never
// read here (S0-101). It does not append, does not sync to disk, and may be
// written shortly after the thread ([Writer]).
package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/services/runner/internal/model"
)

type line struct {
	Role       model.Role `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []call     `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Name       string     `json:"name,omitempty"`
}

type call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Path is the session file of a thread.
func Path(dir, threadID string) string { return filepath.Join(dir, route.SessionFile(threadID)) }

// Write replaces the session file of a thread. dir is made when only it is
// missing: an agent that was removed must not come back.
func Write(dir, threadID, system string, messages []model.Message) error {
	data, err := Encode(system, messages)
	if err != nil {
		return fmt.Errorf("encode session: %w", err)
	}
	// No fsync: after a power cut an old or empty projection is as good as none,
	// and the turns of a thread are one after the other, so one name is enough.
	path := Path(dir, threadID)
	err = os.WriteFile(path+".tmp", data, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make sessions directory: %w", err)
		}
		err = os.WriteFile(path+".tmp", data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("replace session: %w", err)
	}
	return nil
}

// Encode is the content of a session file.
func Encode(system string, messages []model.Message) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if system != "" {
		if err := enc.Encode(line{Role: model.RoleSystem, Content: system}); err != nil {
			return nil, err
		}
	}
	for _, m := range messages {
		l := line{Role: m.Role, Content: m.Text, ToolCallID: m.ToolCallID, Name: m.Name}
		for _, c := range m.ToolCalls {
			l.ToolCalls = append(l.ToolCalls, call{c.ID, c.Name, c.Arguments})
		}
		if err := enc.Encode(l); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
