// Package newfile makes the files that a person asks agentctl for: backups, exports and
// bundles.
//
// A file has mode 0600, is complete and on disk or is not there, and replaces nothing, also
// not what another program has made meanwhile. The package does not know what is in it.
package newfile

import (
	"errors"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
)

// Make makes the file dest with what fill writes. what is its content in words, such as
// "a backup".
func Make(dest, what string, fill func(*os.File) error) error {
	exists := fault.New(codes.AlreadyExists, fault.InvalidArgument, dest+" exists already", "choose another name; "+what+" replaces nothing")
	if _, err := os.Lstat(dest); err == nil {
		return exists
	}
	f, err := os.CreateTemp(filepath.Dir(dest), "."+filepath.Base(dest)+".") // mode 0600
	if err != nil {
		if at, ok := errors.AsType[*os.PathError](err); ok {
			at.Path = dest // the caller has not named the temporary file
		}
		return Fault(err, "write into an existing directory of your own")
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), dest) // not a rename, which would replace
	if errors.Is(err, os.ErrExist) {
		return exists
	}
	if err != nil {
		return Fault(err, exists.Fix)
	}
	d, err := os.Open(filepath.Dir(dest))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Fault is the failure of a file operation with what to do about it.
func Fault(err error, fix string) error {
	e := fault.From(agentdir.Fault(err))
	return fault.Wrap(fault.New(e.Code, e.Reason, err.Error(), fix), err)
}
