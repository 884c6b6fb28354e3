package invariant

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/leftover"
)

// files walks the home once, for what is judged by files.
func (c *check) files(ctx context.Context) error {
	return exposure.Walk(ctx, c.path, c.o.Agent, func(path, agent, rest string, e fs.DirEntry) {
		c.stats.Files++
		if rel, err := filepath.Rel(c.path.Path(), path); err == nil && !c.o.Live && leftover.Is(filepath.ToSlash(rel)) {
			c.i19(agent, path)
		}
		// What an agent's programs make in their directory has the modes they
		// want; the directory itself keeps everybody else out.
		theirs := strings.HasPrefix(rest, "workdir"+string(filepath.Separator))
		if info, err := e.Info(); err == nil && !theirs {
			c.i16(agent, path, info)
		}
		if e.Type().IsRegular() {
			c.i15(path)
		}
	})
}

// i19: what a cut-off write left behind is known as that, and may go.
func (c *check) i19(agent, path string) {
	c.findings = append(c.findings, Finding{
		Invariant: "I19", Agent: agent, What: path + " was left behind by an interrupted write",
		Fix: "run 'agentctl fsck --repair', or remove it", Severity: Warning,
	})
}

// i16: files and sockets are 0600, directories 0700.
func (c *check) i16(agent, path string, info fs.FileInfo) {
	most, counts := exposure.PrivateMode(info)
	if perm := info.Mode().Perm(); counts && perm&^most != 0 {
		c.findings = append(c.findings, Finding{
			Invariant: "I16", Agent: agent, What: fmt.Sprintf("%s has mode %o", path, perm),
			Fix: fmt.Sprintf("run 'agentctl fsck --repair', or chmod %o it", most), Severity: Violation,
		})
	}
}
