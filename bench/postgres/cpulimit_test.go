package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
)

// A process that would take all of a processor gets its share of it.
func TestHold(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sh", "-c", "read go; while :; do :; done")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	g, err := limitCPU([]int{c.Process.Pid}, .1)
	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		need.Missing(t, "a cgroup that holds processes ("+err.Error()+")", "run the tests as root on a host with cgroups that can be written")
	}
	began := time.Now()
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	<-time.After(500 * time.Millisecond)
	_ = c.Process.Kill()
	_ = c.Wait()
	took := time.Since(began)
	if used := c.ProcessState.UserTime() + c.ProcessState.SystemTime(); used > took/5+20*time.Millisecond {
		t.Errorf("used %v of %v, with a tenth to have", used, took)
	}
	if err := g.Release(); err != nil {
		t.Error(err)
	}
}
