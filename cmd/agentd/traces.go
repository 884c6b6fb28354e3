package main

import (
	"context"
	"os"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing/export"
)

// openTraces makes what the services need to be traced; nothing unless the
// environment asks for it.
func (e *env) openTraces() error {
	ctx := context.Background()
	var err error
	e.traces, err = export.Open(ctx, export.Options{Getenv: e.getenv, Console: os.Stdout, Version: versionText(), Failed: func(err error) {
		e.log.Warn("traces not sent", "error", fault.Chain(err))
	}})
	if err != nil || e.traces == nil {
		return err
	}
	e.traced = map[string]export.Service{}
	for _, s := range e.services {
		if e.traced[s.name], err = e.traces.Service(ctx, s.name); err != nil {
			return err
		}
	}
	return nil
}

// closeTraces sends what is left; a collector that is away does not hold the end up.
func (e *env) closeTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := e.traces.Close(ctx); err != nil {
		e.log.Warn("traces not sent", "error", fault.Chain(err))
	}
}
