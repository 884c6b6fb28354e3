//go:build proof

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"

	"github.com/theclaw/agents/internal/testing/need"
)

// notes reads the agent's own memory.
func notes(t *testing.T, home string) string {
	t.Helper()
	f, err := owner(t, home).Agents().ReadAgentFile(t.Context(), &registry.ReadAgentFileRequest{AgentId: "a1", Name: "memory/agent.md"})
	if err != nil {
		t.Fatal(err)
	}
	return string(f.GetContent())
}

func note(t *testing.T, home, text string) {
	t.Helper()
	if _, err := owner(t, home).Agents().WriteAgentFile(t.Context(), &registry.WriteAgentFileRequest{AgentId: "a1", Name: "memory/agent.md", Content: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryEdit: an edit is never written over a change that it has not seen.
func TestMemoryEdit(t *testing.T) {
	dir, home := built(t), filepath.Join(t.TempDir(), "h")
	services(t, home)
	if _, err := owner(t, home).Agents().CreateAgent(t.Context(), &registry.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	t.Run("from standard input", func(t *testing.T) {
		note(t, home, "old\n")
		before, write := io.Pipe()
		c := exec.Command(filepath.Join(dir, "agentctl"), "memory", "edit", "a1")
		c.Env = []string{"THECLAW_HOME=" + home}
		c.Stdin = before
		var said strings.Builder
		c.Stderr = &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// More than a pipe holds: when it is written, the program has read, and it
		// reads its input after the memory.
		if _, err := write.Write([]byte(strings.Repeat("new\n", 64<<10))); err != nil {
			t.Fatal(err)
		}
		note(t, home, "somebody else's\n")
		_ = write.Close()
		if err := c.Wait(); err == nil || !errorLine.MatchString(said.String()) || !strings.Contains(said.String(), "changed by somebody else") {
			t.Errorf("%v: %s", err, said.String())
		}
		if got := notes(t, home); got != "somebody else's\n" {
			t.Errorf("memory holds %.40q", got)
		}
	})
	t.Run("at a terminal", func(t *testing.T) {
		need.Tmux(t)
		note(t, home, "old\n")
		editor := filepath.Join(t.TempDir(), "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\necho \"editing $(cat \"$2\")\"\necho \"$1\" >> \"$2\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		m := tmux{t, filepath.Join(t.TempDir(), "s")}
		m.do("new-session", "-d", "-x", "100", "-y", "30",
			"THECLAW_HOME='"+home+"' VISUAL= EDITOR='"+editor+" more' '"+filepath.Join(dir, "agentctl")+"' memory edit a1; echo exit=$?; exec cat")
		t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })
		m.shows("editing old", "memory/agent.md: written", "exit=0")
		if got := notes(t, home); got != "old\nmore\n" {
			t.Errorf("memory holds %q", got)
		}
	})
}
