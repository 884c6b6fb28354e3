package agentdir

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/inboxpath"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
)

// Agent is a directory together with the settings that were in force when it was
// loaded. Settings are cheap to read (well under a millisecond): load at each batch.
type Agent struct {
	Dir
	Config config.Config
	// Values are the same settings one by one, each with its origin.
	Values []layer.Value
	// Files are what the settings were read from.
	Files Files
	// Entry is the entry of the agent in agents.list; the zero value when it has none.
	Entry layer.AgentEntry
	// Workspace is the directory in which its tools work.
	Workspace string
	// Secrets are those of the home that the agent may use.
	Secrets []layer.Secret
	// Servers are the MCP servers of the home, by name.
	Servers []layer.Server
	// Programs are those of the home that are tools, by name.
	Programs []layer.Program
	// Hooks are those of the home and after them its own.
	Hooks []hook.Hook
	// Accounts are those of the home.
	Accounts []layer.Account
	// Owners are those of the home, each as type:peer.
	Owners []string
	// Fallbacks are the models that can follow the agent's own, each as PROVIDER/MODEL.
	Fallbacks []string
	// Problem is what is wrong with the present files, when these settings are the last
	// good ones: CONFIG_INVALID, or why a file cannot be read. nil: these are the files'.
	Problem error
}

// Files are the bytes of the files of an agent's settings. The zero value is none.
type Files struct {
	Config   []byte     // config.yaml
	Defaults layer.File // theclaw.yaml or theclaw.json5; no name: there is none
}

// Load reads the settings of an agent: defaults, theclaw.yaml, its config.yaml, then
// the overrides of the caller. A theclaw.yaml that cannot be used leaves the last good one
// that this Home has read in force, with the Problem. Errors: AGENT_NOT_FOUND, CONFIG_INVALID, those of [Fault].
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

// Keep is Load, and when the files cannot be used it returns the settings of the last good
// ones, with the Problem. Errors: those of Load when there are no last good files, or when
// the agent is gone.
func (h *Home) Keep(id string, last Files) (*Agent, error) {
	a, err := h.Load(id)
	if err == nil {
		return a, nil
	}
	d, bad := h.Agent(id)
	if bad != nil || d.Check() != nil {
		return nil, err
	}
	return h.LastGood(id, last, err)
}

// LastGood returns the settings of the last good files; problem is why newer ones are not in
// force, and the error when there are none.
func (h *Home) LastGood(id string, last Files, problem error) (*Agent, error) {
	d, err := h.Agent(id)
	if err != nil || last.Config == nil {
		return nil, problem
	}
	in := layer.Layers{AgentID: id, Agent: layer.File{Name: configFile, Data: last.Config}, Home: last.Defaults}
	if good, known, _ := h.defaults(); known && good.file.Name == last.Defaults.Name && bytes.Equal(good.file.Data, last.Defaults.Data) {
		in.Parsed = good.parsed
	}
	a, err := d.read(in, codes.FailedPrecondition)
	if err != nil {
		return nil, problem
	}
	a.Problem = problem
	return a, nil
}

// Present returns the bytes of an agent's files, for a later Keep. The caller knows that
// they are good.
func (h *Home) Present(id string) (Files, error) {
	d, err := h.Agent(id)
	if err != nil {
		return Files{}, err
	}
	config, _, err := d.ReadFile(configFile)
	if err != nil {
		return Files{}, err
	}
	good, _, err := h.defaults()
	return Files{config, good.file}, err
}

// CheckDefaults returns what is wrong with the settings of the home, for a service that starts.
// Errors: CONFIG_INVALID, those of [Fault].
func (h *Home) CheckDefaults() error {
	_, _, err := h.defaults()
	return err
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
	in, problem, err := d.layers(data, overrides)
	if err != nil {
		return nil, err
	}
	a, err := d.read(in, blame)
	if err != nil {
		return nil, err
	}
	a.Problem = problem
	return a, nil
}

// read parses layers.
func (d Dir) read(in layer.Layers, blame codes.Code) (*Agent, error) {
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
	a := &Agent{Dir: d, Config: loaded.Config, Values: loaded.Values, Entry: loaded.Entry, Secrets: loaded.Secrets, Servers: loaded.Servers, Programs: loaded.Programs, Hooks: loaded.Hooks, Accounts: loaded.Accounts, Owners: loaded.Owners, Fallbacks: loaded.Fallbacks(), Files: Files{in.Agent.Data, in.Home}}
	if err := a.resolveWorkspace(loaded); err != nil {
		return nil, invalid(blame, err)
	}
	if err := a.checkBinds(loaded); err != nil {
		return nil, invalid(blame, err)
	}
	return a, nil
}

// layers returns the files with the home's defaults. problem is why the present defaults are
// not in force, but the last good ones; the error when there are none.
func (d Dir) layers(data []byte, overrides []layer.Override) (in layer.Layers, problem, err error) {
	in = layer.Layers{AgentID: d.ID, Agent: layer.File{Name: configFile, Data: data}, Overrides: overrides}
	good, known, problem := d.home.defaults()
	if !known {
		return in, nil, problem
	}
	in.Home, in.Parsed = good.file, good.parsed
	return in, problem, nil
}

// AccountTools are the lists of tools of the accounts of the home.
func (a *Agent) AccountTools() config.AccountTools {
	return layer.HomeSettings{Accounts: a.Accounts}.AccountTools()
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
	in, _, err := d.layers(config, nil)
	if err != nil {
		return nil, err
	}
	config, err = layer.Set(in, key, value)
	if err != nil {
		return nil, invalid(codes.InvalidArgument, err)
	}
	return config, nil
}
