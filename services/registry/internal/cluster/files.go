package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/removal"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
)

const (
	// Fresh is how long settings are trusted without a check of their version.
	Fresh = 2 * time.Second
	// kept is how many settings stay cached at least once they were read, and half of the
	// most: a page of a list stays cached until it is sent.
	kept       = 5_000
	configFile = "config.yaml"
)

// Files are the files of the agents, in the database.
//
// What an agent's settings mean is read once for each version of its config.yaml and of
// the home's defaults, and cached. Another registry may change the file: it sends a notice
// (forget), and since a notice may be lost, the version is compared with the database's
// after Fresh. So a change holds at once here, within milliseconds at the
// other registries, and within Fresh in the worst case.
//
// Home-wide settings are in the database, too (central). The defaults of a registry's own
// theclaw.yaml are below those.
type Files struct {
	db      store.AgentRows
	home    *agentdir.Home // its defaults and its rules
	central *central       // the defaults of all registries
	changed func(agent string)

	mu            sync.Mutex
	known         map[string]*entry                     // the newest; when they are kept, they become the older
	older         map[string]*entry                     // ones, and those before are forgotten
	parsed        map[[sha256.Size]byte]*agentdir.Agent // by what is below the name
	invalidations uint64                                // calls of forget
}

type entry struct {
	version, defaults string
	set               *agentdir.Agent
	err               error
	at                time.Time // when the version was last compared
}

// newFiles returns the files of a database; changed is called for each file that was changed
// here.
func newFiles(db store.AgentRows, home *agentdir.Home, c *central, changed func(agent string)) *Files {
	return &Files{db: db, home: home, central: c, changed: changed, known: map[string]*entry{}, parsed: map[[sha256.Size]byte]*agentdir.Agent{}}
}

// forget makes the next read of an agent's settings query the database; "" of all agents.
func (s *Files) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invalidations++
	if id == "" {
		for _, list := range []map[string]*entry{s.known, s.older} {
			for _, e := range list {
				e.at = time.Time{}
			}
		}
	} else if e := s.find(id); e != nil {
		e.at = time.Time{}
	}
}

// find returns what is known of an agent's settings; nil when nothing is.
func (s *Files) find(id string) *entry {
	if e := s.known[id]; e != nil {
		return e
	}
	return s.older[id]
}

// create makes an agent with its files.
func (s *Files) create(ctx context.Context, id string, spec agentdir.Spec) error {
	dir, err := s.home.Agent(id)
	if err != nil {
		return err
	}
	files, err := spec.Files(dir)
	if err != nil {
		return err
	}
	err = s.db.Create(ctx, id, files)
	if errors.Is(err, store.ErrAgentExists) {
		return dir.Exists()
	}
	return err
}

// remove removes an agent and returns a function that clears what is left of it: the files
// that runners of this home wrote for its programs. A working directory that all runners
// share is removed first: the rows name it, and after a kill in between the call is
// repeated.
func (s *Files) remove(ctx context.Context, id string) (func() error, error) {
	data, _, err := s.db.Read(ctx, id, configFile)
	if err == nil {
		if set, bad := s.home.Judge(id, data); bad == nil { // by settings that are wrong nobody has worked
			err = removal.Workdir(set)
			if e, ok := errors.AsType[*fault.Error](err); ok {
				e.Fix += `, then 'agentctl config set ` + id + ` workdir.central ""', then again`
			}
		}
	} else if errors.Is(err, store.ErrNoFile) {
		err = nil
	}
	if err != nil {
		return nil, s.fault(id, configFile, err)
	}
	if err := s.db.Remove(ctx, id); err != nil {
		return nil, s.fault(id, "", err)
	}
	s.mu.Lock()
	delete(s.known, id)
	delete(s.older, id)
	s.mu.Unlock()
	s.changed(id)
	return func() error {
		dir, err := removal.Put(s.home, id)
		if fault.Is(err, fault.AgentNotFound) {
			return nil
		}
		if err == nil {
			err = removal.Clear(s.home, dir, false)
		}
		return err
	}, nil
}

// Settings returns the settings that are in force.
func (s *Files) Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error) {
	defaults := s.defaults(ctx)
	s.mu.Lock()
	e, seen := s.find(a.ID), s.invalidations
	var had entry
	if e != nil {
		had = *e
	}
	s.mu.Unlock()
	same := e != nil && had.defaults == defaults
	if same && time.Since(had.at) < Fresh {
		return had.set, had.err
	}
	began := time.Now()
	if same {
		version, err := s.db.Version(ctx, a.ID, configFile)
		if err != nil {
			return nil, s.fault(a.ID, configFile, err)
		}
		if version == had.version {
			s.keep(a.ID, had, began, seen)
			return had.set, had.err
		}
	}
	data, version, err := s.db.Read(ctx, a.ID, configFile)
	if err != nil {
		return nil, s.fault(a.ID, configFile, err)
	}
	next := entry{version: version, defaults: defaults}
	next.set, next.err = s.inForce(a.ID, data, defaults, had.set)
	s.keep(a.ID, next, began, seen)
	return next.set, next.err
}

// inForce returns what a config.yaml says, or the last settings when it cannot be used.
func (s *Files) inForce(id string, data []byte, defaults string, last *agentdir.Agent) (*agentdir.Agent, error) {
	set, err := s.judge(id, data, defaults)
	if err != nil && last != nil {
		return s.home.LastGood(id, last.Files, err)
	}
	return set, err
}

// keep caches what the database had at an instant; a notice since then may have been about
// it.
func (s *Files) keep(id string, e entry, at time.Time, seen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= kept && s.known[id] == nil {
		s.known, s.older = map[string]*entry{}, s.known
	}
	delete(s.older, id)
	if e.at = at; s.invalidations != seen {
		e.at = time.Time{}
	}
	s.known[id] = &e
}

// defaults names the state of what is below the settings of all agents.
func (s *Files) defaults(ctx context.Context) string {
	return s.central.version(ctx) + " " + stamp(s.home.DefaultsFile()) + stamp(s.home.JSON5File())
}

func stamp(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return "-"
	}
	return strconv.FormatInt(st.ModTime().UnixNano(), 36) + "." + strconv.FormatInt(st.Size(), 36)
}

// fault gives an error of the database the words that agentdir has for it. A database that does
// not answer is one to try again: a turn whose settings cannot be read is not dead of it.
func (s *Files) fault(id, name string, err error) error {
	dir, bad := s.home.Agent(id)
	switch {
	case err == nil:
		return nil
	case bad != nil:
		return bad
	case errors.Is(err, store.ErrNotFound):
		return dir.NotFound()
	case errors.Is(err, store.ErrNoFile):
		return fault.Wrap(dir.Lacks(name), fs.ErrNotExist)
	case errors.Is(err, store.ErrMoved):
		return dir.Moved(name)
	}
	if f := unreachable(err); f != nil {
		return fault.Wrap(f, err)
	}
	return err
}

// Read returns a file and its version; the cause is fs.ErrNotExist when it is missing.
func (s *Files) Read(ctx context.Context, id, name string) ([]byte, string, error) {
	if err := agentdir.ValidFile(name); err != nil {
		return nil, "", err
	}
	data, version, err := s.db.Read(ctx, id, name)
	return data, version, s.fault(id, name, err)
}

// Write replaces a file; see agentdir.Dir.
func (s *Files) Write(ctx context.Context, id, name string, data []byte, expect string) (string, error) {
	dir, err := s.home.Agent(id)
	if err != nil {
		return "", err
	}
	if err := agentdir.ValidFile(name); err != nil {
		return "", err
	}
	if err := dir.Accept(name, data); err != nil {
		return "", err
	}
	version, err := s.db.Write(ctx, id, name, data, expect)
	if err != nil {
		return "", s.fault(id, name, err)
	}
	if name == configFile {
		s.forget(id)
		s.changed(id)
	}
	return version, nil
}

// Set changes a setting; see agentdir.Dir. Of two who change a key at once none loses the change.
func (s *Files) Set(ctx context.Context, id, key, value string) (string, error) {
	dir, err := s.home.Agent(id)
	if err != nil {
		return "", err
	}
	for {
		data, version, err := s.Read(ctx, id, configFile)
		if err != nil {
			return "", err
		}
		if data, err = dir.Changed(data, key, value); err != nil {
			return "", err
		}
		if version, err = s.Write(ctx, id, configFile, data, version); !errors.Is(err, agentdir.ErrChanged) {
			return version, err
		}
	}
}

// Each reads those of several files that are there, in their order.
func (s *Files) Each(ctx context.Context, id string, names []string, found func(name string, data []byte, err error)) {
	all, err := s.db.ReadAll(ctx, id, names)
	if err != nil {
		found(strings.Join(names, " "), nil, err)
		return
	}
	for _, n := range names {
		if data, there := all[n]; there {
			found(n, data, nil)
		}
	}
}

// Usages returns USAGE.md of other agents than one, at most limit, in order.
func (s *Files) Usages(ctx context.Context, but string, limit int) ([]state.Usage, error) {
	all, err := s.db.Firsts(ctx, "USAGE.md", limit+1)
	if err != nil {
		return nil, err
	}
	out := make([]state.Usage, 0, len(all))
	for id, data := range all {
		if id != but {
			out = append(out, state.Usage{Agent: id, Text: string(data)})
		}
	}
	slices.SortFunc(out, func(a, b state.Usage) int { return strings.Compare(a.Agent, b.Agent) })
	return out[:min(len(out), limit)], nil
}

// Threads returns the conversation threads after one, at most limit, in order.
func (s *Files) Threads(ctx context.Context, id, after string, limit int) ([]string, error) {
	ids, err := s.db.Threads(ctx, id, after, limit)
	return ids, s.fault(id, "", err)
}

// list returns a page of the agents, and takes over what it read of their settings.
func (s *Files) list(ctx context.Context, after string, limit int) ([]store.AgentRow, error) {
	began, defaults := time.Now(), s.defaults(ctx)
	s.mu.Lock()
	seen := s.invalidations
	s.mu.Unlock()
	all, err := s.db.List(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		s.mu.Lock()
		e := s.find(a.ID)
		var next entry
		if e != nil {
			next = *e
		}
		s.mu.Unlock()
		if next.version != a.Version || next.defaults != defaults {
			last := next.set
			next = entry{version: a.Version, defaults: defaults}
			next.set, next.err = s.inForce(a.ID, a.Config, defaults, last)
		}
		s.keep(a.ID, next, began, seen)
	}
	return all, nil
}
