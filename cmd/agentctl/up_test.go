//go:build proof

package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUpLeavesNothingBehind: whatever ends `agentctl up`, the services it
// started end too.
func TestUpLeavesNothingBehind(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "ended": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := filepath.Join(t.TempDir(), "h")
			c := exec.Command(filepath.Join(built(t), "agentctl"), "up")
			c.Env = []string{"THECLAW_HOME=" + home}
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			c.Stderr = &said
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte("hello\n")); err != nil {
				t.Fatal(err)
			}
			if reply, err := bufio.NewReader(out).ReadString('\n'); reply != "offline: hello\n" {
				t.Fatalf("reply %q, %v", reply, err)
			}
			pid := lockedBy(t, home)
			if err := c.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			if end != syscall.SIGKILL && !strings.Contains(said.String(), "the services stop with this command; 'agentd all' starts them again\n") {
				t.Errorf("no word of the services: %q", said.String())
			}
			if end != syscall.SIGKILL && alive(pid) {
				t.Errorf("agentctl has gone and agentd (pid %d) is there", pid)
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for range 3000 { // after a SIGKILL it is the kernel that tells agentd
				if !alive(pid) {
					return
				}
				<-tick.C
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("agentd (pid %d) was left behind", pid)
		})
	}
}

func lockedBy(t *testing.T, home string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "run", "registry.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || !alive(pid) {
		t.Fatalf("registry.lock has %q, %v", b, err)
	}
	return pid
}

// alive is false for a process that has ended, reaped or not.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
