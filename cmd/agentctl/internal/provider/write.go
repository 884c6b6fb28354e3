package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/fault"
)

// FileName is the file of a home that describes its providers.
const FileName = "providers.yaml"

// Definition is one provider as setup describes it in providers.yaml.
type Definition struct {
	Name, BaseURL, Model string
	KeyRef               string // file:PATH or env:NAME; empty: it has no key
}

// YAML is a providers.yaml with this provider alone. It holds no key.
func (d Definition) YAML() ([]byte, error) {
	type entry struct {
		BaseURL string   `yaml:"base_url,omitempty"`
		APIKey  string   `yaml:"api_key,omitempty"`
		Models  []string `yaml:"models,omitempty"`
	}
	one := entry{BaseURL: d.BaseURL, APIKey: d.KeyRef}
	if d.Model != "" {
		one.Models = []string{d.Model}
	}
	text, err := yaml.Marshal(struct {
		Default   string           `yaml:"default"`
		Providers map[string]entry `yaml:"providers"`
	}{d.Name, map[string]entry{d.Name: one}})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", FileName, err)
	}
	return append([]byte("# Written by 'agentctl setup'. More keys, more providers: docs/settings.md and README.md.\n"), text...), nil
}

// plainName is a name that can also be that of a key file.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })

// CheckName refuses what cannot be the name of a provider that setup describes.
func CheckName(name string) error {
	if name == "offline" || name == "pai" || !plainName().MatchString(name) {
		return fault.Usage(fmt.Sprintf("%.80q cannot be the name of a provider", name), "use small letters, digits, - and _; 'agentctl providers list --all' lists those that are known")
	}
	return nil
}

// KeyFile is the name of the key file of a provider, in the home.
func KeyFile(name string) string { return name + ".key" }

// Write stores a provider and its key in the home. The key comes first, so that a
// providers.yaml never names a file that is not there; each file is complete or as it was,
// also after a kill. A providers.yaml that says something else is refused, unless replace
// is set: it is then kept as providers.yaml.old. changed is false when all was there.
func Write(path string, d Definition, key string, replace bool) (changed bool, err error) {
	home, err := agentdir.OpenHome(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	root, err := os.OpenRoot(path)
	if err != nil {
		return false, agentdir.Fault(err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := cleanKeys(root); err != nil {
		return false, agentdir.Fault(err)
	}
	if key != "" {
		d.KeyRef = "file:" + KeyFile(d.Name)
	}
	text, err := d.YAML()
	if err != nil {
		return false, err
	}
	old, err := safefile.Read(root, FileName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, agentdir.Fault(err)
	}
	differs := err == nil && !bytes.Equal(old, text)
	if differs && !replace {
		return false, fault.New(codes.AlreadyExists, fault.InvalidArgument, root.Name()+"/"+FileName+" is there already and says something else",
			"add the provider to it and try 'agentctl providers test "+d.Name+"', or let --replace keep it as "+FileName+".old")
	}
	put := func(name string, data []byte) error {
		now, err := safefile.Read(root, name)
		if err == nil && bytes.Equal(now, data) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		changed = true
		return safefile.Replace(root, name, data)
	}
	if differs {
		if err := put(FileName+".old", old); err != nil {
			return changed, agentdir.Fault(err)
		}
	}
	if key != "" {
		if err := put(KeyFile(d.Name), []byte(key+"\n")); err != nil {
			return changed, agentdir.Fault(err)
		}
		if err := root.Chmod(KeyFile(d.Name), 0o600); err != nil {
			return changed, agentdir.Fault(err)
		}
	}
	return changed, agentdir.Fault(put(FileName, text))
}

// Exists reports whether the home has a providers.yaml.
func Exists(path string) bool {
	_, err := os.Lstat(path + "/" + FileName)
	return err == nil
}

// unfinished is the temporary file of a key, which a kill in mid-write leaves.
var unfinished = regexp.MustCompile(`^\..+\.key[0-9]+$`)

// cleanKeys removes what a killed Write has left. A younger file may be in use.
func cleanKeys(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !unfinished.MatchString(e.Name()) || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if err := root.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
