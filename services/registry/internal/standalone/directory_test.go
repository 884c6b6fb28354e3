package standalone_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// A message written with plain SQLite makes the agent due by the watch alone:
// the sweep of this registry comes once an hour.
func TestForeignPushIsSeen(t *testing.T) {
	home := t.TempDir()
	w := start(t, backendtest.Options{Home: home}, registry.Config{Sweep: time.Hour})
	w.Create("a1")
	w.Push("a1", "bob", "first", "")
	w.Answer("a1", "1") // the inbox is open and watched now
	foreign(t, filepath.Join(home, "agents/a1/inbox"), "INSERT INTO events(source,type,content) VALUES('external:telegram:main:dm:eve:eve','message','{\"text\":\"behind our back\"}')")
	w.Answer("a1", "2")
	st := backendtest.Must2(w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if st.GetInbox().GetLastAckedId() != 2 {
		t.Fatalf("status %v", st)
	}
}

// S0-11: a directory that vanishes is told and stops nobody else.
func TestVanishedDirectory(t *testing.T) {
	home := t.TempDir()
	w := start(t, backendtest.Options{Home: home}, registry.Config{})
	w.Create("a1")
	w.Create("a2")
	w.Push("a1", "bob", "1", "")
	if err := os.RemoveAll(filepath.Join(home, "agents", "a1")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}); !fault.Is(err, fault.AgentNotFound) {
		t.Fatalf("status: %v", err)
	}
	if _, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "bob", "2", "")); !fault.Is(err, fault.AgentNotFound) {
		t.Fatalf("push: %v", err)
	}
	l := backendtest.Must2(w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{}))
	if len(l.GetAgents()) != 1 || l.GetAgents()[0].GetAgentId() != "a2" {
		t.Fatalf("list %v", l)
	}
	w.Push("a2", "bob", "1", "")
	w.Answer("a2", "still here")
	w.Create("a1")
	w.Push("a1", "bob", "new life", "")
	w.Answer("a1", "hi")
}

// A home that was moved serves its agents at the first start, although the last run saved where
// their inboxes were.
func TestMovedHome(t *testing.T) {
	dir := t.TempDir()
	o := backendtest.Options{Home: filepath.Join(dir, "before")}
	w := start(t, o, registry.Config{})
	w.Create("a1")
	w.Stop()
	old := time.Now().Add(-time.Hour) // what is saved with settings of this instant is not used
	if err := os.Chtimes(filepath.Join(o.Home, "agents", "a1", "config.yaml"), old, old); err != nil {
		t.Fatal(err)
	}
	w = start(t, o, registry.Config{})
	w.Push("a1", "bob", "1", "")
	w.Stop()
	o.Home = filepath.Join(dir, "after")
	if err := os.Rename(filepath.Join(dir, "before"), o.Home); err != nil {
		t.Fatal(err)
	}
	w = start(t, o, registry.Config{})
	w.Push("a1", "bob", "2", "")
	w.Answer("a1", "here")
	st := backendtest.Must2(w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"}))
	if want := filepath.Join(o.Home, "agents", "a1", "inbox"); st.GetInboxPath() != want || st.GetInbox().GetLastAckedId() != 2 {
		t.Errorf("status %v, want the inbox at %s", st, want)
	}
}
