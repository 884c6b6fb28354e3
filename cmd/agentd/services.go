package main

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/services/registry"
)

// service is one row of what agentd can serve.
type service struct {
	name string
	make func(ctx context.Context, e *env) (component, error)
}

// all is every service in the order of starting; they end in the reverse one.
var all = []service{{"registry", makeRegistry}}

// choose answers the services a word names, or nil.
func choose(word string) []service {
	if word == "all" {
		return all
	}
	for _, s := range all {
		if s.name == word {
			return []service{s}
		}
	}
	return nil
}

func makeRegistry(ctx context.Context, e *env) (component, error) {
	log := agentlog.New(e.redactor)
	s, err := registry.New(ctx, registry.Config{}, registry.Deps{
		Home: e.homeDir, Logger: e.log.With("service", "registry"), Metrics: obs.NewRegistryMetrics(e.metrics), Log: log,
	})
	if err != nil {
		return component{}, err
	}
	token, err := rpc.NewToken(e.homeDir.TokenFile()) // after the home's lock: only its owner rotates it
	if err != nil {
		return component{}, errors.Join(err, s.Close())
	}
	return component{
		register: s.Register, policy: registry.Policy(), token: func() string { return token }, run: s.Run,
		close: func() error { return errors.Join(s.Close(), log.Close()) },
	}, nil
}
