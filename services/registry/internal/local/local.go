// Package local owns where agents are on one machine: directories of the home, with
// their files as people edit them. The work is agentdir's.
package local

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/gone"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// Agents are the directories of a home.
type Agents struct{ home *agentdir.Home }

// New makes it of a home.
func New(home *agentdir.Home) Agents { return Agents{home} }

// Create is that of core.Agents; the inbox is made with the directory.
func (l Agents) Create(_ context.Context, id string, spec agentdir.Spec) error {
	spec.Prepare = func(dir string) error {
		_, err := db.Make(filepath.Join(dir, thread.Inbox), schema.Prepare)
		return err
	}
	_, err := l.home.Create(id, spec)
	return err
}

// Remove is that of core.Agents.
func (l Agents) Remove(_ context.Context, id string) (func() error, error) {
	dir, err := gone.Put(l.home, id)
	return func() error { return gone.Clear(l.home, dir) }, err
}

// Settings is that of core.Agents: read again when a file has changed.
func (l Agents) Settings(_ context.Context, a *directory.Agent) (*agentdir.Agent, error) {
	return a.Settings(l.home)
}

// Read is that of core.Agents.
func (l Agents) Read(_ context.Context, id, name string) ([]byte, string, error) {
	dir, err := l.home.Agent(id)
	if err != nil {
		return nil, "", err
	}
	return dir.ReadFile(name)
}

// Write is that of core.Agents.
func (l Agents) Write(_ context.Context, id, name string, data []byte, expect string) (string, error) {
	dir, err := l.home.Agent(id)
	if err != nil {
		return "", err
	}
	return dir.WriteFile(name, data, expect)
}

// Set is that of core.Agents.
func (l Agents) Set(_ context.Context, id, key, value string) (string, error) {
	dir, err := l.home.Agent(id)
	if err != nil {
		return "", err
	}
	return dir.SetConfig(key, value)
}

// Each is that of core.Agents.
func (l Agents) Each(_ context.Context, id string, names []string, found func(name string, data []byte, err error)) {
	dir, err := l.home.Agent(id)
	if err != nil {
		found("", nil, err)
		return
	}
	dir.ReadEach(names, found)
}

// Usages is that of core.Agents. One that cannot be read is left out.
func (l Agents) Usages(ctx context.Context, but string, limit int) ([]directory.Usage, error) {
	ids, err := l.home.IDs()
	var out []directory.Usage
	for _, id := range ids {
		if id == but || len(out) == limit || ctx.Err() != nil {
			continue
		}
		if data, _, err := l.Read(ctx, id, "USAGE.md"); err == nil {
			out = append(out, directory.Usage{Agent: id, Text: string(data)})
		}
	}
	return out, errors.Join(err, ctx.Err())
}

// Threads is that of core.Agents.
func (l Agents) Threads(ctx context.Context, id, after string, limit int) ([]string, error) {
	dir, err := l.home.Agent(id)
	if err != nil {
		return nil, err
	}
	return dir.ListThreads(ctx, after, limit)
}
