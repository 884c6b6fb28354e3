package agentdir

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/inboxpath"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/safefile"
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

// Judge is Load for a config.yaml that is stored elsewhere: it parses the bytes together
// with the home's defaults. Errors: CONFIG_INVALID.
func (h *Home) Judge(id string, config []byte) (*Agent, error) {
	d, err := h.Agent(id)
	if err != nil {
		return nil, err
	}
	return d.load(config, codes.FailedPrecondition, nil)
}

// load parses the bytes of a config.yaml together with the home's defaults.
func (d Dir) load(data []byte, blame codes.Code, overrides []layer.Override) (*Agent, error) {
	in, err := d.layers(data, overrides)
	if err != nil {
		return nil, err
	}
	loaded, err := layer.Load(in)
	if err != nil {
		return nil, invalid(blame, err)
	}
	inbox, problem, err := inboxpath.Resolve(loaded.Config.Inbox.Path, inboxpath.Place{
		AgentID: d.ID, Dir: d.Path, Home: d.home.Path(), UserHome: d.home.UserHome, Allowed: loaded.InboxPaths,
	})
	if err != nil {
		return nil, Fault(err)
	}
	if problem != "" {
		return nil, invalid(blame, loaded.Problem("inbox.path", "inbox.path "+problem))
	}
	d.inbox = inbox
	return &Agent{Dir: d, Config: loaded.Config, Values: loaded.Values}, nil
}

func (d Dir) layers(data []byte, overrides []layer.Override) (layer.Layers, error) {
	in := layer.Layers{AgentID: d.ID, Agent: layer.File{Name: configFile, Data: data}, Overrides: overrides}
	home, err := safefile.Read(d.home.root, layout.DefaultsName)
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	in.Home = layer.File{Name: layout.DefaultsName, Data: home}
	return in, Fault(err)
}

// Storage returns where the registry of this home keeps agents and threads, as
// theclaw.yaml says. Errors: CONFIG_INVALID, those of [Fault].
func (h *Home) Storage() (layer.Storage, error) {
	data, err := safefile.Read(h.root, layout.DefaultsName)
	if errors.Is(err, fs.ErrNotExist) {
		return layer.Storage{}, nil
	}
	if err != nil {
		return layer.Storage{}, Fault(err)
	}
	s, err := layer.ReadStorage(layer.File{Name: layout.DefaultsName, Data: data})
	if err != nil {
		return s, invalid(codes.FailedPrecondition, err)
	}
	return s, nil
}

// Get returns one setting and its origin; the error names the keys there are.
func (a *Agent) Get(key string) (layer.Value, error) {
	if i := slices.IndexFunc(a.Values, func(v layer.Value) bool { return v.Key == key }); i >= 0 {
		return a.Values[i], nil
	}
	return layer.Value{}, fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("there is no setting %.80q", key),
		"'agentctl config effective "+a.ID+"' lists all of them")
}

// SetConfig changes one key of config.yaml, keeping comments and order, and returns
// the file's new version. Nothing is written unless the result is valid.
func (d Dir) SetConfig(key, value string) (version string, err error) {
	d.home.mu.Lock()
	defer d.home.mu.Unlock()
	data, _, err := d.ReadFile(configFile)
	if err != nil {
		return "", err
	}
	data, err = d.Changed(data, key, value)
	if err != nil {
		return "", err
	}
	return d.write(configFile, data, "")
}

// Changed returns a config.yaml with one key changed; CONFIG_INVALID unless it is valid.
func (d Dir) Changed(config []byte, key, value string) ([]byte, error) {
	in, err := d.layers(config, nil)
	if err != nil {
		return nil, err
	}
	config, err = layer.Set(in, key, value)
	if err != nil {
		return nil, invalid(codes.InvalidArgument, err)
	}
	return config, nil
}
