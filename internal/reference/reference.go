// Package reference owns how settings name what must not stand in a file of ours: a
// secret, or the address of a database with a password in it. A reference is env:NAME,
// a variable of the environment, or file:PATH, the content of a file without the blanks
// around it. What is read is the caller's to keep out of logs.
package reference

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// ErrPlain says that a value was given instead of a reference.
var ErrPlain = errors.New("a secret is given as env:NAME or file:PATH")

// Read answers what a reference stands for. Errors: ErrPlain; a variable that is not
// set; a file that cannot be read. None holds a value.
func Read(getenv func(string) string, ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		if v := getenv(name); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	return "", ErrPlain
}

// Databases answers the URLs of databases, each given as one or as a reference, in their
// order. Errors: CONFIG_INVALID.
func Databases(getenv func(string) string, given []string) ([]string, error) {
	out := make([]string, len(given))
	for i, ref := range given {
		url, err := Read(getenv, ref)
		if errors.Is(err, ErrPlain) {
			url, err = ref, nil
		}
		if err != nil {
			return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				"the address of the database cannot be read: "+err.Error(), "see storage.dsns in theclaw.yaml, or --dsn"), err)
		}
		out[i] = url
	}
	return out, nil
}
