package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// elsewhere is the journal of a runner that shares no files with the registry:
// the working directories it is told are replaced by its own.
type elsewhere struct {
	turn.Journal
	root string
}

// BeginTurn answers with directories of ours, which it makes.
func (e elsewhere) BeginTurn(ctx context.Context, in *registrypb.BeginTurnRequest, opts ...grpc.CallOption) (*registrypb.BeginTurnResponse, error) {
	out, err := e.Journal.BeginTurn(ctx, in, opts...)
	if c := out.GetConfig(); err == nil && c != nil {
		if c.Workdir, err = e.dir(in.GetAgentId(), "workdir"); err != nil {
			return nil, err
		}
		if c.SessionsDir, err = e.dir(in.GetAgentId(), "sessions"); err != nil {
			return nil, err
		}
	}
	return out, err
}

// dir makes a directory of an agent. The id was checked where the agent was made.
func (e elsewhere) dir(agentID, name string) (string, error) {
	path := filepath.Join(e.root, filepath.Base(agentID), name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make %s of agent %s: %w", name, agentID, err)
	}
	return path, nil
}
