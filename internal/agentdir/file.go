package agentdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/fault"
)

const (
	configFile = "config.yaml"
	// MaxFileSize is the largest text file of an agent in bytes.
	MaxFileSize = safefile.MaxSize
	// NoFile as the expected version means that the file must not exist yet.
	NoFile = "none"
)

// ErrChanged is the cause of an error when a file does not have the expected version.
var ErrChanged = errors.New("file changed")

var memoryRule = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^memory/(?:past/)?[A-Za-z0-9_@%~][A-Za-z0-9_.:@+%~-]{0,240}\.md$`)
})

// ValidFile checks the name of a file that can be read and written by name:
// IDENTITY.md, USAGE.md, config.yaml, memory/<name>.md and memory/past/<name>.md.
func ValidFile(name string) error {
	switch name {
	case "IDENTITY.md", "USAGE.md", configFile:
		return nil
	}
	if memoryRule().MatchString(name) {
		return nil
	}
	const rule = "use IDENTITY.md, USAGE.md, config.yaml, memory/<name>.md or memory/past/<name>.md"
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.80q is not a file of an agent", name), rule)
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
	data, err = safefile.Read(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fault.Wrap(d.Lacks(name), err)
	}
	if err != nil {
		return nil, "", Fault(fmt.Errorf("read %s: %w", name, err))
	}
	return data, Version(data), nil
}

// ReadEach reads those of several files that exist, in their order, and calls found with
// each file or its error. The content may be shared: it must not be changed.
func (d Dir) ReadEach(names []string, found func(name string, data []byte, err error)) {
	var root *os.Root
	defer func() {
		if root != nil {
			_ = root.Close()
		}
	}()
	for _, name := range names {
		data, err := d.readCached(&root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found(name, data, Fault(err))
	}
}

// readCached reads a file unless it is as it was when it was last read. root is opened when
// it is needed.
func (d Dir) readCached(root **os.Root, name string) ([]byte, error) {
	if err := ValidFile(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.Path, name)
	stamp, settled, err := stampOf(path)
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if settled {
		if data, ok := d.home.cache.get(path, stamp); ok {
			return data, nil
		}
	}
	if *root == nil {
		if *root, err = d.open(); err != nil {
			return nil, err
		}
	}
	data, err := safefile.Read(*root, name)
	if err == nil && settled {
		d.home.cache.put(path, stamp, data)
	}
	return data, err
}

// Lacks is the error for a file that is missing; its cause is fs.ErrNotExist.
func (d Dir) Lacks(name string) *fault.Error {
	return fault.Wrap(fault.New(codes.NotFound, fault.InvalidArgument, fmt.Sprintf("agent '%s' has no %s", d.ID, name), "write the file first"), fs.ErrNotExist)
}

// WriteFile replaces a file completely or not at all and returns its new version; it is
// on disk when WriteFile returns. expect is the version that the file must have: ""
// any, [NoFile] none. A file that has another one is an error with code Aborted and
// the cause [ErrChanged]. config.yaml must be valid. The limit is [MaxFileSize], the
// content UTF-8.
func (d Dir) WriteFile(name string, data []byte, expect string) (version string, err error) {
	if err := ValidFile(name); err != nil {
		return "", err
	}
	d.home.mu.Lock()
	defer d.home.mu.Unlock()
	return d.write(name, data, expect)
}

// write does it under the home's lock, which makes compare and set one step.
func (d Dir) write(name string, data []byte, expect string) (string, error) {
	if err := d.Accept(name, data); err != nil {
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
	if err := makeDir(root, path.Dir(name)); err != nil {
		return "", Fault(err)
	}
	if err := safefile.Replace(root, name, data); err != nil {
		return "", Fault(fmt.Errorf("write %s: %w", name, err))
	}
	return Version(data), nil
}

// makeDir makes a directory below root, and its entry survives a power loss.
func makeDir(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	err := root.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(root, path.Dir(dir)); err == nil {
			err = root.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return safefile.SyncDir(root, path.Dir(dir))
}

// Accept refuses content that must not be stored: too large, no text, or settings that
// are not valid.
func (d Dir) Accept(name string, data []byte) error {
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
		return d.Moved(name)
	}
	return nil
}

// Moved is the error for a file that does not have the expected version.
func (d Dir) Moved(name string) error {
	return fault.Wrap(fault.New(codes.Aborted, fault.InvalidArgument,
		fmt.Sprintf("%s of agent '%s' was changed by somebody else: it has another version", name, d.ID), "read it again and repeat the change"), ErrChanged)
}

// Clean removes what writes that a crash interrupted have left in the directory. A
// leftover younger than age may belong to a write that still runs, and stays.
func (d Dir) Clean(age time.Duration) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, dir := range []string{".", "memory", "memory/past"} {
		if err := safefile.Clean(root, dir, age); err != nil {
			return Fault(err)
		}
	}
	return nil
}
