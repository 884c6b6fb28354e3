// Package reference reads what settings refer to instead of holding it: a secret, or the
// address of a database with a password in it. A reference is env:NAME, an environment
// variable, or file:PATH, the content of a file without surrounding blanks. A path that is not
// absolute is below the home, so that a home can be moved. The caller keeps what it reads out
// of logs.
package reference

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// ErrPlain reports that a value was given instead of a reference.
var ErrPlain = errors.New("a secret is given as env:NAME or file:PATH")

// Is reports whether a text has the form of a reference.
func Is(ref string) bool {
	name, env := strings.CutPrefix(ref, "env:")
	path, file := strings.CutPrefix(ref, "file:")
	return env && name != "" || file && path != ""
}

// Read returns what a reference stands for. A relative path is below dir; empty: below the
// working directory. Errors: ErrPlain; a variable that is not
// set; a file that cannot be read, is empty or is no regular file of at most 64 KiB. None holds a value.
func Read(dir string, getenv func(string) string, ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		if v := getenv(name); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		b, err := read(path)
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		if v := strings.TrimSpace(string(b)); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the file %s is empty", path)
	}
	return "", ErrPlain
}

// maxFile is the most bytes of the file of a reference.
const maxFile = 64 << 10

// read returns the content of a regular file. A pipe or a device may have no end.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d KiB", path, maxFile>>10)
	}
	return os.ReadFile(path)
}

// Gather is how the agents of several databases come into one, which only builds before
// this one do.
const Gather = "with the build before this one stop the agents and run 'agentctl migrate-store ID... --to-shard 1 --dsn URL1 --dsn URL2 --apply', " +
	"with every agent and every database in its order; then stop the services, run \"psql URL1 -c 'TRUNCATE shard, moved'\" and leave URL1 alone in storage.dsns (docs/operations.md)"

// Database returns the URL of the database, which is given as one or as a reference, whose
// relative path is below dir; "" when none is given. Errors: CONFIG_INVALID, also for more than one.
func Database(dir string, getenv func(string) string, given []string) (string, error) {
	switch len(given) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
			fmt.Sprintf("%d databases are given, and an installation has one", len(given)), Gather)
	}
	url, err := Read(dir, getenv, given[0])
	if errors.Is(err, ErrPlain) {
		return given[0], nil
	}
	if err != nil {
		return "", fault.Wrap(fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
			"the address of the database cannot be read: "+err.Error(), "see storage.dsns in theclaw.yaml, or --dsn"), err)
	}
	return url, nil
}
