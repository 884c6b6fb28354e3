package agentdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
)

// goodHome are settings of a home that could be used.
type goodHome struct {
	file   layer.File // no name: there is none
	parsed *layer.Home
	at     time.Time // when they were first read
}

// HomeState is which settings of a home are in force.
type HomeState struct {
	Settings layer.HomeSettings
	// Name and Text are those of the file in force; empty: there is none.
	Name string
	Text []byte
	// LoadedAt is when this Home first read them.
	LoadedAt time.Time
	// Problem is what is wrong with the present file while older settings are in force.
	Problem error
	// Refused is the version of the file that Problem is about; empty: it was not read.
	Refused string
	// Restart are the keys that have another value than when this Home first read the
	// settings, and that are in force after a restart.
	Restart []string
}

// HomeSettings returns the settings of the present file of the home; where it cannot be used,
// the last good ones with the problem. It reads nothing when no file has changed.
func (h *Home) HomeSettings() (s layer.HomeSettings, problem error) {
	good, known, problem := h.defaults()
	if !known {
		return layer.HomeSettings{}, problem
	}
	return good.parsed.Settings, problem
}

// HomeState returns which settings of the home are in force; the error when none ever were.
func (h *Home) HomeState() (HomeState, error) {
	good, known, problem := h.defaults()
	if !known {
		return HomeState{}, problem
	}
	s := HomeState{
		Settings: good.parsed.Settings, Name: good.file.Name, Text: good.file.Data, LoadedAt: good.at, Problem: problem,
	}
	h.goodMu.Lock()
	defer h.goodMu.Unlock()
	s.Restart = good.parsed.RestartKeys(h.first)
	if problem != nil {
		s.Refused = h.refused
	}
	return s, nil
}

// defaults returns the settings of the home. problem is what is wrong with the present file;
// then they are those of the last time that it could be used, unless this Home has not seen
// such a time (known is false).
func (h *Home) defaults() (good goodHome, known bool, problem error) {
	h.goodMu.Lock()
	defer h.goodMu.Unlock()
	stamp, settled := h.settingsStamp()
	if settled && stamp == h.seen {
		return h.good, h.known, h.bad
	}
	h.bad = h.reread()
	h.seen = ""
	if settled && (h.bad == nil || fault.Is(h.bad, fault.ConfigInvalid)) { // else read again: the disk may recover
		h.seen = stamp
	}
	return h.good, h.known, h.bad
}

// reread takes over the present file unless there is a problem with it.
func (h *Home) reread() error {
	h.refused = ""
	file, err := readSettings(h.Home, h.root)
	if err != nil {
		return err
	}
	h.refused = Version(file.Data) // until it is taken over
	if h.known && file.Name == h.good.file.Name && bytes.Equal(file.Data, h.good.file.Data) {
		return nil // one copy for all agents
	}
	if file.Name != "" && len(file.Data) == 0 && h.known {
		// A program that writes in place empties the file first: not to be taken for the
		// settings of a person who wants none.
		if _, settled := h.settingsStamp(); !settled {
			return nil
		}
	}
	parsed, err := layer.ParseHome(file)
	if err != nil {
		return invalid(codes.FailedPrecondition, err)
	}
	if err := h.checkDirs(parsed); err != nil {
		return invalid(codes.FailedPrecondition, err)
	}
	if h.shared != nil {
		if parsed, err = h.shared.Over(parsed); err != nil {
			return invalid(codes.FailedPrecondition, err)
		}
	}
	if h.first == nil {
		h.first = parsed
	}
	h.good, h.known = goodHome{file, parsed, time.Now()}, true
	return nil
}

// settingsStamp tells states of the two files apart; settled is false while a further write
// might not show in it.
func (h *Home) settingsStamp() (stamp string, settled bool) {
	for _, path := range []string{h.DefaultsFile(), h.JSON5File()} {
		s, quiet, err := stampOf(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			stamp += "-"
		case err != nil || !quiet:
			return "", false
		default:
			stamp += fmt.Sprint(s)
		}
	}
	return stamp, true
}

// ReadSettings returns the file of the settings of a home, theclaw.yaml or theclaw.json5, by
// the paths of the home alone; without a name when it has none. Errors: CONFIG_INVALID when it
// has both, those of [Fault].
func ReadSettings(home layout.Home) (layer.File, error) {
	root, err := os.OpenRoot(home.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return layer.File{}, nil
	}
	if err != nil {
		return layer.File{}, Fault(err)
	}
	defer func() { _ = root.Close() }()
	return readSettings(home, root)
}

func readSettings(home layout.Home, root *os.Root) (file layer.File, err error) {
	for _, name := range []string{layout.DefaultsName, layout.JSON5Name} {
		data, err := safefile.Read(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return layer.File{}, Fault(fmt.Errorf("read %s: %w", name, err))
		case file.Name != "":
			e := fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				fmt.Sprintf("%s has both %s and %s", home.Path(), layout.DefaultsName, layout.JSON5Name), "remove one of the two files")
			e.Meta = map[string]string{"file": name}
			return layer.File{}, e
		default:
			file = layer.File{Name: name, Data: data}
		}
	}
	return file, nil
}

// Storage returns where the registry of this home keeps agents and threads, as the file of the
// home says. Errors: CONFIG_INVALID, those of [Fault].
func (h *Home) Storage() (layer.Storage, error) {
	file, err := readSettings(h.Home, h.root)
	if err != nil {
		return layer.Storage{}, err
	}
	s, err := layer.ReadStorage(file)
	if err != nil {
		return s, invalid(codes.FailedPrecondition, err)
	}
	return s, nil
}

// Gateway returns where the gateway of this home listens, as the file of the home says. Errors:
// CONFIG_INVALID, those of [Fault].
func (h *Home) Gateway() (layer.Gateway, error) {
	file, err := readSettings(h.Home, h.root)
	if err != nil {
		return layer.Gateway{}, err
	}
	s, err := layer.ReadHome(file)
	if err != nil {
		return layer.Gateway{}, invalid(codes.FailedPrecondition, err)
	}
	return s.Gateway, nil
}

// DefaultAgent returns the agent for messages that nothing else gives to one: the marked entry
// of agents.list, its first entry, the agent main, admin, the first of ids. ids are the agents
// that exist, in order; an entry without an agent is not chosen. Empty: there is no agent.
func DefaultAgent(s layer.HomeSettings, ids []string) string {
	exists := make(map[string]bool, len(ids))
	for _, id := range ids {
		exists[id] = true
	}
	first := ""
	for _, e := range s.Agents {
		switch {
		case !exists[e.ID]:
		case e.Default:
			return e.ID
		case first == "":
			first = e.ID
		}
	}
	if first != "" {
		return first
	}
	for _, id := range []string{MainAgent, "admin"} {
		if exists[id] {
			return id
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// MainAgent is the id that means the default agent where no agent has it.
const MainAgent = "main"

// SetBindings replaces the bindings in the file of the home that has a version, and returns the
// new version. Errors: BINDINGS_CHANGED for another version, CONFIG_INVALID, FAILED_PRECONDITION
// for theclaw.json5, which is never rewritten: it says what to insert.
func (h *Home) SetBindings(list []binding.Binding, version string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	file, err := readSettings(h.Home, h.root)
	if err != nil {
		return "", err
	}
	now, err := layer.ReadHome(file)
	if err != nil {
		return "", invalid(codes.FailedPrecondition, err)
	}
	switch {
	case now.Version != version:
		return "", fault.New(codes.Aborted, fault.BindingsChanged, file.Name+" has changed since its bindings were read", "read them again and repeat the change")
	case file.Name == layout.JSON5Name:
		return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, layout.JSON5Name+" is not rewritten by programs", "write the list there yourself: "+layer.BindingsJSON5(list))
	}
	data, err := layer.SetBindings(file.Data, list)
	if err != nil {
		return "", invalid(codes.InvalidArgument, err)
	}
	if err := safefile.Replace(h.root, layout.DefaultsName, data); err != nil {
		return "", Fault(fmt.Errorf("write %s: %w", layout.DefaultsName, err))
	}
	next, err := layer.ReadHome(layer.File{Name: layout.DefaultsName, Data: data})
	return next.Version, err
}

// SetValue sets one key in the file of the home to a value in YAML, or removes it when that is empty, and returns the
// new settings and whether the key was there. A home without a file gets one. Errors: CONFIG_INVALID,
// FAILED_PRECONDITION for theclaw.json5, which is never rewritten: it says what to change.
func (h *Home) SetValue(path []string, value string) (now layer.HomeSettings, existed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	file, err := readSettings(h.Home, h.root)
	if err != nil {
		return now, false, err
	}
	if file.Name == layout.JSON5Name {
		fix := "remove " + strings.Join(path, ".") + " there yourself"
		if value != "" {
			fix = "set " + strings.Join(path, ".") + " there yourself, to " + value
		}
		return now, false, fault.New(codes.FailedPrecondition, fault.InvalidArgument, layout.JSON5Name+" is not rewritten by programs", fix)
	}
	file.Name = layout.DefaultsName
	data, existed, err := layer.SetHomeValue(file, path, value)
	if err != nil {
		return now, false, invalid(codes.InvalidArgument, err)
	}
	parsed, err := layer.ParseHome(layer.File{Name: layout.DefaultsName, Data: data})
	if err == nil {
		err = h.checkDirs(parsed)
	}
	if err != nil {
		return now, false, invalid(codes.InvalidArgument, err)
	}
	if bytes.Equal(data, file.Data) {
		return parsed.Settings, existed, nil
	}
	if err := safefile.Replace(h.root, layout.DefaultsName, data); err != nil {
		return now, false, Fault(fmt.Errorf("write %s: %w", layout.DefaultsName, err))
	}
	return parsed.Settings, existed, nil
}

// UseCentral puts settings that several registries share over the file of this home, in place
// of those given before, and returns what they say of the home. Errors: CONFIG_INVALID;
// the settings before stay in force.
func (h *Home) UseCentral(file layer.File) (layer.HomeSettings, error) {
	parsed, err := layer.ParseHome(file)
	if err != nil {
		return layer.HomeSettings{}, invalid(codes.FailedPrecondition, err)
	}
	h.goodMu.Lock()
	defer h.goodMu.Unlock()
	before, known := h.shared, h.known
	h.shared, h.known = parsed, false
	if err := h.reread(); err != nil {
		h.shared, h.known = before, known
		return layer.HomeSettings{}, err
	}
	h.seen, h.bad = "", nil
	return parsed.Settings, nil
}

// Invalid is what a caller gets for settings that cannot be used: CONFIG_INVALID.
func Invalid(err error) error { return invalid(codes.InvalidArgument, err) }
