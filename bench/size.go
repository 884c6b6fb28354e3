package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are what a release has for a machine; thread is a link to agentctl.
var programs = []string{"agentd", "agentctl", "agent", "theclaw-sandbox"}

// sizes measures the programs next to the one that is measured, which `make build` strips,
// and their archive, which is made as in a release.
func (r *run) sizes(ctx context.Context) error {
	from, packed := filepath.Dir(r.agentd), filepath.Join(r.dir, "packed")
	if err := os.Mkdir(packed, 0o700); err != nil {
		return err
	}
	var sum int64
	for _, name := range programs {
		file, err := filepath.Abs(filepath.Join(from, name))
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		sum += info.Size()
		if err := os.Link(file, filepath.Join(packed, name)); err != nil {
			if out, err := exec.CommandContext(ctx, "cp", file, packed).CombinedOutput(); err != nil {
				return fmt.Errorf("copy %s: %w: %s", name, err, out)
			}
		}
	}
	r.Below("sum of the stripped programs, MB", float64(sum)/1e6, 85)
	archive := filepath.Join(r.dir, "programs.tar.gz")
	cmd := exec.CommandContext(ctx, "go", "-C", "tools", "run", "./archive", "-out", archive, packed)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make an archive: %w: %s", err, out)
	}
	info, err := os.Stat(archive)
	if err != nil {
		return err
	}
	r.Below("release archive of all programs (gzip), MB", float64(info.Size())/1e6, 35)
	return nil
}
