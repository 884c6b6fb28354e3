package invariant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/invariant/exposure"
	"github.com/theclaw/agents/internal/invariant/leftover"
)

// files walks the home once, for what is judged by files.
func (c *check) files(ctx context.Context) error {
	home := c.path.Path()
	err := filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // a side file that was closed meanwhile
				return nil
			}
			return err
		}
		agent, rest := c.place(path)
		if c.o.Agent != "" && agent != "" && agent != c.o.Agent {
			return fs.SkipDir
		}
		c.stats.Files++
		if rel, err := filepath.Rel(home, path); err == nil && !c.o.Live && leftover.Is(filepath.ToSlash(rel)) {
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
		return nil
	})
	if err != nil {
		return fmt.Errorf("walk home: %w", err)
	}
	return nil
}

// place answers the agent that a path belongs to and where below it.
func (c *check) place(path string) (agent, rest string) {
	rel, err := filepath.Rel(c.path.AgentsDir(), path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return "", ""
	}
	agent, rest, _ = strings.Cut(rel, string(filepath.Separator))
	return agent, rest
}

// i19: what a cut-off write left behind is known as that, and may go.
func (c *check) i19(agent, path string) {
	c.findings = append(c.findings, Finding{
		Invariant: "I19", Agent: agent, What: path + " was left behind by a write that was cut off",
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
