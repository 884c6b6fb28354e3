package legacy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/internal/agentdir/layout"
)

// ScanHome answers what is to be done for the home itself: its directories may have been
// made under a wide umask.
func ScanHome(home layout.Home) ([]Change, error) {
	var wide []string
	for _, dir := range []string{home.Path(), home.AgentsDir(), home.RunDir(), home.HoldersDir()} {
		info, err := os.Stat(filepath.Clean(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.IsDir() && info.Mode().Perm()&0o077 != 0 {
			wide = append(wide, dir)
		}
	}
	if len(wide) == 0 {
		return nil, nil
	}
	return []Change{{
		Check: "modes", What: fmt.Sprintf("%d directories of the home can be entered by others, such as %s", len(wide), wide[0]),
		Do: "takes others' permissions away", Fix: "run 'agentctl migrate --all --apply' with the services stopped",
		do: func(context.Context, string) error {
			for _, dir := range wide {
				if err := os.Chmod(dir, 0o700); err != nil {
					return err
				}
			}
			return nil
		},
	}}, nil
}
