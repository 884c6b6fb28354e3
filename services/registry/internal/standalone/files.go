package standalone

import (
	"context"
	"errors"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// Files gives access to the files in the directories of agents, by package agentdir.
type Files struct{ home *agentdir.Home }

// NewFiles returns the files of a home.
func NewFiles(home *agentdir.Home) Files { return Files{home} }

// Settings returns the settings that are in force: read again when a file has changed.
func (f Files) Settings(_ context.Context, a *state.Agent) (*agentdir.Agent, error) {
	return a.Settings(f.home)
}

// Read returns a file and its version; see agentdir.Dir.
func (f Files) Read(_ context.Context, id, name string) ([]byte, string, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return nil, "", err
	}
	return dir.ReadFile(name)
}

// Write replaces a file; see agentdir.Dir.
func (f Files) Write(_ context.Context, id, name string, data []byte, expect string) (string, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return "", err
	}
	return dir.WriteFile(name, data, expect)
}

// Set changes a setting; see agentdir.Dir.
func (f Files) Set(_ context.Context, id, key, value string) (string, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return "", err
	}
	return dir.SetConfig(key, value)
}

// Each reads those of several files that are there, in their order.
func (f Files) Each(_ context.Context, id string, names []string, found func(name string, data []byte, err error)) {
	dir, err := f.home.Agent(id)
	if err != nil {
		found("", nil, err)
		return
	}
	dir.ReadEach(names, found)
}

// Usages returns USAGE.md of other agents than one, at most limit, in order. One that
// cannot be read is left out.
func (f Files) Usages(ctx context.Context, but string, limit int) ([]state.Usage, error) {
	ids, err := f.home.IDs()
	var out []state.Usage
	for _, id := range ids {
		if id == but || len(out) == limit || ctx.Err() != nil {
			continue
		}
		if data, _, err := f.Read(ctx, id, "USAGE.md"); err == nil {
			out = append(out, state.Usage{Agent: id, Text: string(data)})
		}
	}
	return out, errors.Join(err, ctx.Err())
}

// Threads returns the conversation threads after one, at most limit, in order.
func (f Files) Threads(ctx context.Context, id, after string, limit int) ([]string, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return nil, err
	}
	return dir.ListThreads(ctx, after, limit)
}

// OwnFile returns a file that the agent or its runner keeps; the cause of one that is
// missing is fs.ErrNotExist.
func (f Files) OwnFile(_ context.Context, id, name string) ([]byte, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return nil, err
	}
	return dir.OwnFile(name)
}

// PastFiles lists the digests of threads of epochs that have ended.
func (f Files) PastFiles(_ context.Context, id string, threads []string) ([]string, error) {
	dir, err := f.home.Agent(id)
	if err != nil {
		return nil, err
	}
	const past = "memory/past"
	names, err := dir.OwnFiles(past)
	var out []string
	for _, n := range names {
		if slices.ContainsFunc(threads, func(t string) bool { return route.IsMemoryPastFile(t, n) }) {
			out = append(out, past+"/"+n)
		}
	}
	return out, err
}

// ErasePeer erases the data of a peer outside of the threads of an agent: files by their
// names, and questions.
func (r *Registry) ErasePeer(ctx context.Context, id string, s store.PeerRecords, files []string) error {
	dir, err := r.home.Agent(id)
	if err != nil {
		return err
	}
	for _, n := range files {
		if err := dir.RemoveFile(n); err != nil {
			return err
		}
	}
	s.Files = []string{}
	return r.Approvals.ErasePeer(ctx, id, s)
}
