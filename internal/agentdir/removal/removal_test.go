package removal_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/removal"
	"github.com/theclaw/agents/internal/fault"
)

// Of the working directories that all runners have an agent's own goes, with what its
// programs have closed; a link goes without what it leads to; where there are none,
// nothing is amiss; and who may not remove it is told where it is.
func TestWorkdir(t *testing.T) {
	shared, outside := t.TempDir(), t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(id, dir string) *agentdir.Agent {
		a := &agentdir.Agent{}
		a.ID, a.Config.Workdir.Shared = id, dir
		return a
	}
	do(os.MkdirAll(filepath.Join(shared, "a1", "closed"), 0o700))
	do(os.WriteFile(filepath.Join(shared, "a1", "closed", "file"), nil, 0o600))
	do(os.Chmod(filepath.Join(shared, "a1", "closed"), 0o500))
	do(os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	do(os.Symlink(outside, filepath.Join(shared, "a2")))
	do(os.Mkdir(filepath.Join(shared, "a3"), 0o700))
	for _, a := range []*agentdir.Agent{of("a1", shared), of("a1", shared), of("a2", shared), of("a4", shared), of("a1", filepath.Join(shared, "nowhere")), of("a3", "")} {
		do(removal.Workdir(a))
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) != 1 || left[0].Name() != "a3" {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error("what a link led to:", err)
	}
	do(os.Chmod(shared, 0o500))
	defer func() { do(os.Chmod(shared, 0o700)) }()
	err := removal.Workdir(of("a3", shared))
	if os.Geteuid() == 0 { // may do everything
		do(err)
	} else if !fault.Is(err, fault.ReadOnly) || !strings.Contains(err.Error(), filepath.Join(shared, "a3")) {
		t.Errorf("another user's: %v", err)
	}
}

// S4-75: with an agent go its scratch directories and those of its MCP servers, and none that another agent may have, or that
// all share. Where the home does not have all agents, only what certainly is the agent's own goes.
func TestScratch(t *testing.T) {
	for _, alone := range []bool{true, false} {
		h, err := agentdir.OpenHome(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = h.Close() }()
		scratch := func(id, key string) string {
			c := config.Default()
			c.AgentID, c.Sandbox.Scope, c.Sandbox.WorkspaceAccess = id, config.ScopeAgent, config.AccessNone
			if key != "" {
				c.Sandbox.Scope = config.ScopeSession
			}
			if key == config.ScopeShared {
				c.Sandbox.Scope = config.ScopeShared
			}
			return filepath.Join(h.SandboxesDir(), c.SandboxAt(config.Conversation{Key: key}).Scratch)
		}
		goes := []string{scratch("a", ""), filepath.Join(h.ServersDir(), "a")}
		stays := []string{
			scratch("a", config.ScopeShared), scratch("a-b", ""), scratch("b", ""), scratch("b", "agent:b:telegram:group:1"), scratch("a-b", "agent:a-b:main"),
			scratch("a", "agent:a:b:1"), // it may be one of a-b
			filepath.Join(h.ServersDir(), "a-b"), filepath.Join(h.ServersDir(), "b"),
		}
		if session := scratch("a", "agent:a:telegram:group:1"); alone {
			goes = append(goes, session)
		} else {
			stays = append(stays, session)
		}
		for _, dir := range slices.Concat(goes, stays, []string{h.AgentDir("a"), h.AgentDir("a-b"), h.AgentDir("b")}) {
			if err := os.MkdirAll(filepath.Join(dir, "closed"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(goes[0], "closed"), 0o500); err != nil {
			t.Fatal(err)
		}
		gone, err := removal.Put(h, "a")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // it may be repeated
			if err := removal.Clear(h, gone, alone); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range goes {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("alone %t: %s is left: %v", alone, dir, err)
			}
		}
		for _, dir := range stays {
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("alone %t: %v", alone, err)
			}
		}
	}
}
