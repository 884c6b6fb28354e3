package core

import (
	"context"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/services/registry/internal/directory"
	"github.com/theclaw/agents/services/registry/internal/local"
	"github.com/theclaw/agents/services/registry/internal/rows"
)

// Agents is where agents and their files are: directories of the home (package local)
// or rows of a database (package rows). Errors: AGENT_NOT_FOUND, those of agentdir.
type Agents interface {
	Create(ctx context.Context, id string, spec agentdir.Spec) error
	// Remove takes an agent away, and answers how to clear what is left of it; from
	// then on there is no such agent, whatever happens.
	Remove(ctx context.Context, id string) (clear func() error, err error)
	// Settings answers the settings that are in force.
	Settings(ctx context.Context, a *directory.Agent) (*agentdir.Agent, error)
	// Read answers a file and its version; the cause is fs.ErrNotExist when it is
	// missing. Write and Set are those of agentdir.Dir.
	Read(ctx context.Context, id, name string) (data []byte, version string, err error)
	Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error)
	Set(ctx context.Context, id, key, value string) (version string, err error)
	// Each reads those of several files that are there, in their order.
	Each(ctx context.Context, id string, names []string, found func(name string, data []byte, err error))
	// Usages answers USAGE.md of other agents than one, at most limit, in order.
	Usages(ctx context.Context, but string, limit int) ([]directory.Usage, error)
	// Threads answers the conversation threads after one, at most limit, in order.
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
}

var (
	_ Agents = local.Agents{}
	_ Agents = (*rows.Agents)(nil)
)
