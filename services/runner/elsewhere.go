package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// elsewhere is the journal of a runner that shares no files with the registry:
// the working directories it is told are replaced by its own, or by those below a
// directory that all runners have.
type elsewhere struct {
	turn.Journal
	root string // empty: the registry's own, unless they are shared
}

// BeginTurn answers with directories of ours, which it makes.
func (e elsewhere) BeginTurn(ctx context.Context, in *registrypb.BeginTurnRequest, opts ...grpc.CallOption) (*registrypb.BeginTurnResponse, error) {
	out, err := e.Journal.BeginTurn(ctx, in, opts...)
	c := out.GetConfig()
	if err != nil || c == nil {
		return out, err
	}
	if shared := c.GetWorkdirShared(); shared != "" {
		// Its name is that of the agent; what is above it is there, or it is not shared.
		c.Workdir = filepath.Join(shared, filepath.Base(in.GetAgentId()))
		if err := os.Mkdir(c.GetWorkdir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make working directory of agent %s: %w", in.GetAgentId(), err)
		}
	} else if e.root != "" {
		if c.Workdir, err = e.dir(in.GetAgentId(), "workdir"); err != nil {
			return nil, err
		}
	}
	if e.root != "" {
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
