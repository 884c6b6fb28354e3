package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/settings"
)

// sharedFile is the row with the settings of the home that registries share.
const sharedFile = "edge.yaml"

// shared caches what the row means. The settings of agents are below it, with the home's own
// file below both: see agentdir.Home.UseShared.
type shared struct {
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
func (s *shared) version(ctx context.Context) string {
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
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{}
}

// HomeSettings returns the settings that registries share, as the database has them now.
func (s *shared) HomeSettings(ctx context.Context) (layer.HomeSettings, error) {
	data, version, err := s.rows.HomeFile(ctx, sharedFile)
	if err != nil {
		return layer.HomeSettings{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Now()
	if s.settings.Version == version && !s.loaded.IsZero() {
		return s.settings, nil
	}
	h, err := s.over.UseShared(layer.File{Name: sharedFile, Data: data})
	if err != nil { // it was checked before it was stored: by a newer version that knows more
		return h, err
	}
	h.Version = version
	s.settings, s.loaded = h, s.checked
	return h, nil
}

// SetBindings replaces the bindings of the row.
func (s *shared) SetBindings(ctx context.Context, list []binding.Binding, version string) (string, error) {
	data, now, err := s.rows.HomeFile(ctx, sharedFile)
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

func (s *shared) put(ctx context.Context, data []byte, version string) (string, error) {
	next, err := s.rows.PutHomeFile(ctx, sharedFile, data, version)
	if err == nil {
		s.forget()
		s.notify()
	}
	return next, err
}

// Written returns the row.
func (s *shared) Written(ctx context.Context) (settings.Written, error) {
	data, version, err := s.rows.HomeFile(ctx, sharedFile)
	if err != nil {
		return settings.Written{}, err
	}
	_, problem := s.HomeSettings(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return settings.Written{Name: sharedFile, Text: data, Version: version, LoadedAt: s.loaded, Problem: problem}, nil
}

// Replace replaces the row.
func (s *shared) Replace(ctx context.Context, text []byte, version string) (string, error) {
	if err := layer.CheckShared(layer.File{Name: sharedFile, Data: text}); err != nil {
		return "", agentdir.Invalid(err)
	}
	return s.put(ctx, text, version)
}
