package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
)

// Resting is a home whose lock the caller holds: the lease table is read from disk.
func Resting(home *agentdir.Home) Source {
	return Source{Home: home, Tokens: func(ctx context.Context) (_ map[string]uint64, err error) {
		out := map[string]uint64{}
		if _, err := os.Stat(home.RegistryDB()); errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		d, err := homedb.Open(ctx, home.RegistryDB())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rows, err := d.Load(ctx)
		for _, r := range rows {
			out[r.Resource] = r.Token
		}
		return out, err
	}}
}
