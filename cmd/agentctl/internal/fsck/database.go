package fsck

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
)

// database is the URL of the one that the registry of this home shares with others;
// empty: the agents are in the home.
func (x *examination) database() (string, error) {
	given, dir := x.dsns, ""
	if len(given) == 0 {
		file, err := agentdir.ReadSettings(x.home)
		if err != nil {
			return "", fmt.Errorf("read settings: %w", err)
		}
		s, err := layer.ReadStorage(file)
		if err != nil { // of an agent in the home the check says what is wrong with it
			x.env.Note(file.Name+" cannot be read, the agents of the home are checked: %s", strings.ReplaceAll(err.Error(), "\n", " "))
			return "", nil
		}
		given, dir = s.DSNs, x.home.Path()
	}
	getenv, err := x.env.Secrets()
	if err != nil {
		return "", err
	}
	return reference.Database(dir, getenv, given)
}

// away is the error of a database that cannot be read. Its text may hold the URL, and
// that a password: only what the server said is told.
func away(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, "the database cannot be read", "check the URL, that PostgreSQL runs and lets this user in, and that a registry of this version has served it"), err)
}
