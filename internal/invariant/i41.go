package invariant

import (
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/source"
)

// i41: a process that is over has exactly one event in the inbox, or its end was seen and it has
// none; one that runs has none yet.
func (c *check) i41(a *snapshot.Agent) {
	if len(a.Inbox.Processes) == 0 {
		return
	}
	events := map[string]int64{} // how many, by process
	for _, e := range a.Inbox.Events {
		if from, _, err := source.ParseLenient(e.Source); err == nil && from.AboutProcess() {
			events[from.ConvID]++
		}
	}
	for _, p := range a.Inbox.Processes {
		want := int64(1)
		if p.Running() || p.Seen {
			want = 0
		}
		kept := a.Inbox.Dedupe[pushed+p.StepKey+":exit"].EventID
		if n := events[p.ID]; n != want {
			c.report("I41", a.Inbox, kept, look(a.ID), "process %s is %s and has %d events in the inbox, which must be %d", strings.ToValidUTF8(p.ID, "?"), p.State, n, want)
		}
	}
}
