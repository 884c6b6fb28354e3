package agentdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/google/renameio/v2"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

const (
	configFile = "config.yaml"
	// MaxFileSize is the largest text file of an agent in bytes.
	MaxFileSize = 1 << 20
	// NoFile as the expected version means that the file must not exist yet.
	NoFile = "none"
	// staleAfter is the age from which a leftover of an interrupted write may go.
	staleAfter = time.Minute
)

// ErrChanged is the cause of an error when a file does not have the expected version.
var ErrChanged = errors.New("file changed")

var (
	memoryRule   = regexp.MustCompile(`^memory/[A-Za-z0-9_@%~][A-Za-z0-9_.:@+%~-]{0,240}\.md$`)
	leftoverRule = regexp.MustCompile(`^\.(IDENTITY\.md|USAGE\.md|config\.yaml|[A-Za-z0-9_@%~][A-Za-z0-9_.:@+%~-]*\.md)[0-9]+$`)
)

// ValidFile checks the name of a file that can be read and written by name:
// IDENTITY.md, USAGE.md, config.yaml and memory/<name>.md.
func ValidFile(name string) error {
	switch name {
	case "IDENTITY.md", "USAGE.md", configFile:
		return nil
	}
	if memoryRule.MatchString(name) {
		return nil
	}
	const rule = "use IDENTITY.md, USAGE.md, config.yaml or memory/<name>.md"
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument, shown(name)+" is not a file of an agent", rule)
	e.Fields = []fault.Field{{Name: "name", Problem: rule}}
	return e
}

// Version names the content of a file: the sha256 of its bytes in hex.
func Version(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// ReadFile returns a file and its version. A file that is missing is an error with
// code NotFound and the cause fs.ErrNotExist.
func (d Dir) ReadFile(name string) (data []byte, version string, err error) {
	if err := ValidFile(name); err != nil {
		return nil, "", err
	}
	root, err := d.open()
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = root.Close() }()
	// O_NONBLOCK: somebody may have put a pipe there, and we must not wait for it.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fault.Wrap(fault.New(codes.NotFound, fault.InvalidArgument,
			fmt.Sprintf("agent '%s' has no %s", d.ID, name), "write the file first"), err)
	}
	if err != nil {
		return nil, "", Fault(fmt.Errorf("read %s: %w", name, err))
	}
	defer func() { _ = f.Close() }()
	if data, err = readAll(f); err != nil {
		return nil, "", Fault(fmt.Errorf("read %s: %w", name, err))
	}
	return data, Version(data), nil
}

// readAll reads a regular file of at most MaxFileSize.
func readAll(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument, info.Name()+" is not a regular file", "remove it")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fault.New(codes.FailedPrecondition, fault.InvalidArgument,
			fmt.Sprintf("%s is larger than %d bytes", info.Name(), MaxFileSize), "shorten the file")
	}
	return data, nil
}

// WriteFile replaces a file whole, or not at all, and returns its new version; it is
// on disk when WriteFile returns. expect is the version that the file must have: ""
// any, [NoFile] none. A file that has another one is an error with code Aborted and
// the cause [ErrChanged]. config.yaml must be valid. The limit is [MaxFileSize], the
// content UTF-8.
func (d Dir) WriteFile(name string, data []byte, expect string) (version string, err error) {
	if err := ValidFile(name); err != nil {
		return "", err
	}
	if d.home == nil || d.home.root == nil {
		return "", errors.New("write file: the home is not open")
	}
	d.home.mu.Lock()
	defer d.home.mu.Unlock()
	return d.write(name, data, expect)
}

// write does it under the home's lock, which makes compare and set one step.
func (d Dir) write(name string, data []byte, expect string) (string, error) {
	if err := d.accept(name, data); err != nil {
		return "", err
	}
	root, err := d.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if expect != "" {
		if err := d.compare(name, expect); err != nil {
			return "", err
		}
	}
	if path.Dir(name) != "." {
		if err := root.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", Fault(err)
		}
	}
	if err := replace(root, name, data); err != nil {
		return "", Fault(fmt.Errorf("write %s: %w", name, err))
	}
	return Version(data), nil
}

// accept refuses content that must not be stored.
func (d Dir) accept(name string, data []byte) error {
	if len(data) > MaxFileSize {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument,
			fmt.Sprintf("%s would have %d bytes", name, len(data)), fmt.Sprintf("at most %d are allowed", MaxFileSize))
	}
	if !utf8.Valid(data) {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, name+" would not be valid UTF-8", "send text")
	}
	if name != configFile {
		return nil
	}
	_, err := d.load(data, codes.InvalidArgument, nil)
	return err
}

func (d Dir) compare(name, expect string) error {
	_, have, err := d.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		have, err = NoFile, nil
	}
	if err != nil {
		return err
	}
	if have != expect {
		return fault.Wrap(fault.New(codes.Aborted, fault.InvalidArgument,
			fmt.Sprintf("%s of agent '%s' was changed by somebody else", name, d.ID), "read it again and repeat the change"), ErrChanged)
	}
	return nil
}

// replace writes beside the file and renames: a reader sees the old or the new bytes.
// The directory is opened first, so that the temporary file lies in the same one.
func replace(root *os.Root, name string, data []byte) (err error) {
	dir, err := root.OpenRoot(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	f, err := renameio.NewPendingFile(path.Base(name), renameio.WithRoot(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	fault.Point("agentdir:before-rename")
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return syncDir(dir, ".")
}

// syncDir makes the entries of a directory survive a power loss.
func syncDir(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Clean removes what writes that a crash interrupted have left in the directory. A
// leftover younger than a minute may belong to a write that still runs, and stays.
func (d Dir) Clean() error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, dir := range []string{".", "memory"} {
		entries, err := fs.ReadDir(root.FS(), dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Fault(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() || !leftoverRule.MatchString(e.Name()) || time.Since(info.ModTime()) < staleAfter {
				continue
			}
			if err := root.Remove(path.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return Fault(err)
			}
		}
	}
	return nil
}
