package agentdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
)

// Agent is a directory together with the settings that were in force when it was
// loaded. Settings are cheap to read (well under a millisecond): load at each batch.
type Agent struct {
	Dir
	Config config.Config
	// Values are the same settings one by one, each with its origin.
	Values []layer.Value
}

// Load reads the settings of an agent: defaults, theclaw.yaml, its config.yaml, then
// the overrides of the caller. Errors: AGENT_NOT_FOUND, CONFIG_INVALID, those of [Fault].
func (h *Home) Load(id string, overrides ...layer.Override) (*Agent, error) {
	d, err := h.Agent(id)
	if err != nil {
		return nil, err
	}
	data, _, err := d.ReadFile(configFile)
	if err != nil {
		return nil, err
	}
	return d.load(data, codes.FailedPrecondition, overrides)
}

// load judges the bytes of a config.yaml together with the home's defaults.
func (d Dir) load(data []byte, blame codes.Code, overrides []layer.Override) (*Agent, error) {
	in, err := d.layers(data, overrides)
	if err != nil {
		return nil, err
	}
	loaded, err := layer.Load(in)
	if err != nil {
		return nil, invalid(blame, err)
	}
	d.inbox, err = d.resolveInbox(loaded)
	if err != nil {
		return nil, invalid(blame, err)
	}
	return &Agent{Dir: d, Config: loaded.Config, Values: loaded.Values}, nil
}

func (d Dir) layers(data []byte, overrides []layer.Override) (layer.Layers, error) {
	in := layer.Layers{AgentID: d.ID, Agent: layer.File{Name: configFile, Data: data}, Overrides: overrides}
	home, err := os.OpenInRoot(d.home.path, homeFile)
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err != nil {
		return in, Fault(err)
	}
	defer func() { _ = home.Close() }()
	in.Home.Name = homeFile
	in.Home.Data, err = readAll(home)
	return in, Fault(err)
}

// resolveInbox turns inbox.path into a directory. A path that ends in agents/<id>/inbox
// is what older tools wrote for the default, wherever the home was then.
func (d Dir) resolveInbox(l *layer.Loaded) (string, error) {
	given := l.Config.Inbox.Path
	if given == "" || strings.HasSuffix("/"+filepath.ToSlash(filepath.Clean(given)), "/agents/"+d.ID+"/inbox") {
		return "", nil
	}
	refuse := func(why string) (string, error) { return "", l.Problem("inbox.path", "inbox.path "+why) }
	full := given
	if rest, ok := strings.CutPrefix(given, "~/"); ok {
		if d.home.UserHome == "" {
			return refuse("starts with ~/ but the user's home directory is not known")
		}
		full = filepath.Join(d.home.UserHome, rest)
	} else if !filepath.IsAbs(given) {
		full = filepath.Join(d.Path, given)
	}
	full = filepath.Clean(full)
	if below(d.Path, full) {
		return refuseLink(d.Path, full, refuse)
	}
	if below(d.home.path, full) {
		return refuse("lies in another part of the home directory")
	}
	for _, allowed := range l.InboxPaths {
		if rest, ok := strings.CutPrefix(allowed, "~/"); ok && d.home.UserHome != "" {
			allowed = filepath.Join(d.home.UserHome, rest)
		}
		if allowed = filepath.Clean(allowed); filepath.IsAbs(allowed) && (full == allowed || below(allowed, full)) {
			return refuseLink(allowed, full, refuse)
		}
	}
	return refuse("lies outside the home directory; list it below inbox_paths in " + homeFile)
}

// refuseLink answers full unless a symbolic link leads it out of dir.
func refuseLink(dir, full string, refuse func(string) (string, error)) (string, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return full, nil // made at first use
	}
	if err != nil {
		return "", Fault(err)
	}
	defer func() { _ = root.Close() }()
	rel, err := filepath.Rel(dir, full)
	if err != nil {
		return refuse("cannot be resolved")
	}
	if _, err := root.Stat(rel); err != nil && isEscape(err) {
		return refuse("leads elsewhere over a symbolic link")
	}
	return full, nil
}

// below reports whether a clean path lies strictly below dir.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// Get returns one setting and its origin; the error names the keys there are.
func (a *Agent) Get(key string) (layer.Value, error) {
	if i := slices.IndexFunc(a.Values, func(v layer.Value) bool { return v.Key == key }); i >= 0 {
		return a.Values[i], nil
	}
	return layer.Value{}, fault.New(codes.InvalidArgument, fault.InvalidArgument, "there is no setting "+shown(key),
		"'agentctl config effective "+a.ID+"' lists all of them")
}

// SetConfig changes one key of config.yaml, keeping comments and order, and answers
// the file's new version. Nothing is written unless the result is valid.
func (d Dir) SetConfig(key, value string) (version string, err error) {
	d.home.mu.Lock()
	defer d.home.mu.Unlock()
	data, _, err := d.ReadFile(configFile)
	if err != nil {
		return "", err
	}
	in, err := d.layers(data, nil)
	if err != nil {
		return "", err
	}
	data, err = layer.Set(in, key, value)
	if err != nil {
		return "", invalid(codes.InvalidArgument, err)
	}
	return d.write(configFile, data, "")
}
