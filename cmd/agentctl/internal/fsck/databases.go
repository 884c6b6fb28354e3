package fsck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// databases are the URLs of those that the registry of this home shares with others;
// none: the agents are in the home.
func (x *examination) databases() ([]string, error) {
	given := x.dsns
	if len(given) == 0 {
		data, err := os.ReadFile(x.home.DefaultsFile())
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, agentdir.Fault(fmt.Errorf("read settings: %w", err))
		}
		s, err := layer.ReadStorage(layer.File{Name: layout.DefaultsName, Data: data})
		if err != nil { // of an agent in the home the check says what is wrong with it
			x.env.Note("theclaw.yaml cannot be read, the agents of the home are checked: %s", strings.ReplaceAll(err.Error(), "\n", " "))
			return nil, nil
		}
		given = s.DSNs
	}
	out := make([]string, len(given))
	for i, ref := range given {
		url, err := x.url(ref)
		if err != nil {
			return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				"the address of the database cannot be read: "+err.Error(), "see storage.dsns in theclaw.yaml, or --dsn"), err)
		}
		out[i] = url
	}
	return out, nil
}

// url is what a reference to the address of a database stands for.
func (x *examination) url(ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		if v := x.env.Getenv(name); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)), err
	}
	return ref, nil
}

// away is the error of a database that cannot be read. Its text may hold the URL, and
// that a password: only what the server said is told.
func away(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, "the database cannot be read", "check the URL, that PostgreSQL runs and lets this user in, and that a registry of this version has served it"), err)
}
