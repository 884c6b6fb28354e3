package invariant

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/leftover"
)

// maxUnread bounds the files of one agent that are named because they cannot be read.
const maxUnread = 10

// logs are the logs of one agent that only their directory keeps from other users.
type logs struct {
	number     int
	first      string // one of them, and its mode
	mode, most fs.FileMode
}

// files walks the home once, for what is judged by files.
func (c *check) files(ctx context.Context) error {
	unread, enclosed := map[string]int{}, map[string]*logs{}
	err := exposure.Walk(ctx, c.path, c.o.Agent, func(f exposure.File) error {
		c.stats.Files++
		if !c.o.Live && leftover.Is(f.Path) {
			c.i19(f)
		}
		switch how, most := f.Exposed(); how {
		case exposure.Exposed:
			c.i16(f, most)
		case exposure.Enclosed:
			if enclosed[f.Agent] == nil {
				enclosed[f.Agent] = &logs{first: boundary.Name(f.Full), mode: f.Info.Mode().Perm(), most: most}
			}
			enclosed[f.Agent].number++
		case exposure.Private:
		}
		if f.Info.Mode().IsRegular() {
			c.i15(f)
		}
		return nil
	}, func(f exposure.File, err error) {
		if unread[f.Agent]++; unread[f.Agent] <= maxUnread {
			c.unread(f, err)
		}
	})
	for _, agent := range slices.Sorted(maps.Keys(unread)) {
		if n := unread[agent]; n > maxUnread {
			c.findings = append(c.findings, Finding{"files", agent, "", 0, fmt.Sprintf("%d more files or directories cannot be read", n-maxUnread), "see the others", Note})
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(enclosed)) {
		l := enclosed[agent]
		c.findings = append(c.findings, Finding{
			Invariant: "I16", Agent: agent,
			What: fmt.Sprintf("%d logs of the external thread tool have a mode such as %o (%s); their directory keeps other users out", l.number, l.mode, l.first),
			Fix:  fmt.Sprintf("nothing has to be done; 'agentctl fsck --repair' makes them %o", l.most), Severity: Note,
		})
	}
	return err
}

// unread reports what the check cannot look into. In a working directory nothing of it is
// judged but whether it holds a secret.
func (c *check) unread(f exposure.File, err error) {
	severity := Violation
	if f.Workdir() {
		severity = Note
	}
	c.findings = append(c.findings, Finding{
		Invariant: "files", Agent: f.Agent, What: fmt.Sprintf("%s cannot be read and is not checked: %v", boundary.Name(f.Full), err),
		Fix: "make it readable for the user who runs TheClaw, or remove it", Severity: severity,
	})
}

// i19: what an interrupted write left behind is recognized, and may be removed.
func (c *check) i19(f exposure.File) {
	c.findings = append(c.findings, Finding{
		Invariant: "I19", Agent: f.Agent, What: boundary.Name(f.Full) + " was left behind by an interrupted write",
		Fix: "run 'agentctl fsck --repair', or remove it", Severity: Warning,
	})
}

// i16: files and sockets are 0600, directories 0700.
func (c *check) i16(f exposure.File, most fs.FileMode) {
	c.findings = append(c.findings, Finding{
		Invariant: "I16", Agent: f.Agent, What: fmt.Sprintf("%s has mode %o", boundary.Name(f.Full), f.Info.Mode().Perm()),
		Fix: fmt.Sprintf("run 'agentctl fsck --repair', or chmod %o it", most), Severity: Violation,
	})
}
