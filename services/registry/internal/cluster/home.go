package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/settings"
)

// centralFile is the row with the settings of the home that registries share.
const centralFile = "edge.yaml"

// central caches what the row means. The settings of agents are below it, with the home's own
// file below both: see agentdir.Home.UseCentral.
type central struct {
	rows   store.HomeFiles
	over   *agentdir.Home
	notify func() // the other registries of a change

	mu       sync.Mutex
	settings layer.HomeSettings
	loaded   time.Time // when the settings in force were read
	checked  time.Time // when the version was last compared with the database's
}

// version names the settings in force, compared with the database's after Fresh. A database that
// does not answer leaves them in force.
func (s *central) version(ctx context.Context) string {
	s.mu.Lock()
	known, fresh := s.settings.Version, time.Since(s.checked) < Fresh
	s.mu.Unlock()
	if fresh {
		return known
	}
	if now, err := s.HomeSettings(ctx); err == nil {
		return now.Version
	}
	return known
}

// forget makes the next use compare the version.
func (s *central) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{}
}

// HomeSettings returns the settings that registries share, as the database has them now.
func (s *central) HomeSettings(ctx context.Context) (layer.HomeSettings, error) {
	data, version, err := s.rows.HomeFile(ctx, centralFile)
	if err != nil {
		return layer.HomeSettings{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Now()
	if s.settings.Version == version && !s.loaded.IsZero() {
		return s.settings, nil
	}
	h, err := s.over.UseCentral(layer.File{Name: centralFile, Data: data})
	if err != nil { // it was checked before it was stored: by a newer version that knows more
		return h, err
	}
	h.Version = version
	s.settings, s.loaded = h, s.checked
	return h, nil
}

// SetBindings replaces the bindings of the row.
func (s *central) SetBindings(ctx context.Context, list []binding.Binding, version string) (string, error) {
	data, now, err := s.rows.HomeFile(ctx, centralFile)
	if err != nil {
		return "", err
	}
	if now != version {
		return "", store.ErrMoved
	}
	data, err = layer.SetBindings(data, list)
	if err != nil {
		return "", agentdir.Invalid(err)
	}
	return s.put(ctx, data, version)
}

func (s *central) put(ctx context.Context, data []byte, version string) (string, error) {
	next, err := s.rows.PutHomeFile(ctx, centralFile, data, version)
	if err == nil {
		s.forget()
		s.notify()
	}
	return next, err
}

// Written returns the row, and what is to be known of the file of this home below it: why that is not in force, and which of
// its keys are in force after a restart.
func (s *central) Written(ctx context.Context) (settings.Written, error) {
	data, version, err := s.rows.HomeFile(ctx, centralFile)
	if err != nil {
		return settings.Written{}, err
	}
	_, problem := s.HomeSettings(ctx)
	own, err := s.over.HomeState()
	if err != nil { // no settings were ever in force, and problem says why
		own.Problem = err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return settings.Written{
		Name: centralFile, Text: data, Version: version, LoadedAt: s.loaded, Problem: cmp.Or(problem, own.Problem),
		Refused: own.Refused, Restart: own.Restart,
	}, nil
}

// Replace replaces the row.
func (s *central) Replace(ctx context.Context, text []byte, version string) (string, error) {
	if err := layer.CheckCentral(layer.File{Name: centralFile, Data: text}); err != nil {
		return "", agentdir.Invalid(err)
	}
	return s.put(ctx, text, version)
}

// SetValue sets or removes one key in the row; a change of another registry in between is no problem, once.
func (s *central) SetValue(ctx context.Context, path []string, value string) (now layer.HomeSettings, existed bool, err error) {
	for again := false; ; again = true {
		data, version, err := s.rows.HomeFile(ctx, centralFile)
		if err != nil {
			return now, false, err
		}
		next, existed, err := layer.SetHomeValue(layer.File{Name: centralFile, Data: data}, path, value)
		if err == nil {
			err = layer.CheckCentral(layer.File{Name: centralFile, Data: next})
		}
		if err != nil {
			return now, false, agentdir.Invalid(err)
		}
		if now, err = layer.ReadHome(layer.File{Name: centralFile, Data: next}); err != nil {
			return now, false, agentdir.Invalid(err)
		}
		if now.Version = version; !bytes.Equal(next, data) {
			now.Version, err = s.put(ctx, next, version)
		}
		if !errors.Is(err, store.ErrMoved) || again {
			return now, existed, err
		}
	}
}
