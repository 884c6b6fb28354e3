package invariant

import "github.com/theclaw/agents/internal/invariant/snapshot"

// media: the data of media are there and have the hash that events and steps refer to.
func (c *check) media(a *snapshot.Agent) {
	for _, m := range a.Inbox.Media {
		if m.Damaged {
			c.report("media", a.Inbox, 0, "restore media/"+m.SHA256[:min(2, len(m.SHA256))]+"/"+m.SHA256+" from a backup; without it, models read that the file is missing",
				"the data of media sha256:%s are missing or damaged", m.SHA256)
		}
	}
}
