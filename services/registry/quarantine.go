package registry

import (
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// quarantine sets an agent aside whose database is damaged: it is FAILED and
// gets no work until the file is another one. All others go on.
//
// The file keeps its name here. A thread without events.db is one that the next
// message makes anew, empty: what was answered and sent would be forgotten, and
// done again. Under its name the damage answers every call, also after a restart,
// until 'agentctl fsck --repair' renames it and has the salvaged one in its
// place in the same moment.
func (s *Service) quarantine(a *directory.Agent, r store.Ref, err error) {
	what := fault.From(s.edge(r.Agent, r.Thread, err))
	path, pathErr := s.dir.Path(r)
	if pathErr != nil {
		a.Fail(what.What, false)
		return
	}
	a.Damage(r.Thread, directory.FileID(path), what.What+": "+what.Fix)
	s.run.Drop(a.ID)
}

// mended takes an agent out of quarantine when the files of its damaged threads
// are others: somebody has restored them.
func (s *Service) mended(a *directory.Agent) {
	for thread, was := range a.Damaged() {
		if path, err := s.dir.Path(store.Ref{Agent: a.ID, Thread: thread}); err == nil && directory.FileID(path) != was {
			s.log.Info("database is another one now", "agent_id", a.ID, "thread_id", thread)
			a.Mend(thread)
		}
	}
}
