package postgres

import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agentlog"
	agentrows "github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/notify"
)

// Attach makes the engine one of a registry, before the first call.
func (e *Engine) Attach(h store.Hooks) {
	e.onCommit = h.OnCommit
	e.leases = leases.New(e.db, h.Dead)
	e.lines = agentlog.New(e.db, func(err error) { e.log.Warn("agent log not written", "error", err) })
	e.notices = notify.New(notify.Options{Pool: e.db, Logger: e.log, On: h.OnNotices, Lost: h.OnMissed})
}

// Agents are the agents and their files.
func (e *Engine) Agents() store.AgentRows { return agentrows.New(e.db) }

// Leases judges who may act; after Attach.
func (e *Engine) Leases() store.Leases { return e.leases }

// Counts are questions, and what was used.
func (e *Engine) Counts() store.Counts { return home.New(e.db) }

// Lines are what is said of agents; after Attach.
func (e *Engine) Lines() store.LogLines { return e.lines }

// Workdirs are the working directories.
func (e *Engine) Workdirs() store.Workdirs { return &workdirs{e.db} }

// Notices are those of the other registries; after Attach.
func (e *Engine) Notices() store.Notices { return e.notices }
