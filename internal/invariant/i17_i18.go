package invariant

import (
	"strings"

	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// i17: the file is sound and every event is what was chained. Each event that is
// not is named, so that what is left can be trusted.
func (c *check) i17(d *snapshot.DB, broken []record.Flaw) {
	fix := repairOf(d.Agent)
	if d.Absent && !record.HasLines(d.Dir) {
		fix = "restore the agent from a backup: 'agentctl restore --agent " + d.Agent + " --replace FILE'; there is nothing here to make it of"
	}
	for _, f := range broken {
		c.report("I17", d, f.Event, fix, "%s", f.What)
	}
}

// i18: the external tool finds its tables and indexes, and events.jsonl says
// what the database says. Where nobody works it says all of it: the lines that a
// crash left out come with the next event, and are a warning until then.
func (c *check) i18(d *snapshot.DB, m record.Mirror) {
	var missing, later []string
	for _, name := range d.Lacks() {
		if table, _, column := strings.Cut(name, "."); column && strings.HasPrefix(table, "x_") {
			later = append(later, name)
		} else {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.report("I18", d, 0, repairOf(d.Agent), "the database has no %s", strings.Join(missing, ", "))
	}
	if len(later) > 0 { // an earlier build made the table and opened the database last
		c.report("I18", d, 0, "nothing: it is added when the registry opens the database next", "the database has no %s yet", strings.Join(later, ", "))
		c.findings[len(c.findings)-1].Severity = Note
	}
	for _, f := range m.Wrong {
		c.report("I18", d, f.Event, repairOf(d.Agent), "%s", f.What)
	}
	if c.o.Live {
		return
	}
	if m.Ahead != 0 {
		fix := "stop here and restore the agent from a backup; or go on, and what is lost stays lost"
		if d.IsInbox() {
			fix = repairOf(d.Agent)
		}
		c.warn("I18", d, m.Ahead, fix, "events.jsonl has event %d, which the database does not know: its last commits are lost", m.Ahead)
	}
	if m.Behind != "" {
		c.warn("I18", d, m.First, repairOf(d.Agent), "%s", m.Behind)
	}
}
