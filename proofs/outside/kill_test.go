//go:build proof

package outside_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/proofs/drill"
)

// shim finds the handler that was dispatched for a message, as whoever kills it does.
func (m *machine) shim(words string) (pid int) {
	m.t.Helper()
	m.await("the handler "+words, func() bool {
		procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range procs {
			b, err := os.ReadFile(file)
			if err != nil || !strings.HasPrefix(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})), words+" ") {
				continue
			}
			env, err := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
			if err == nil && bytes.Contains(env, []byte("HOME="+m.user+"\x00")) {
				pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
				return true
			}
		}
		return false
	})
	return pid
}

// TestShimKilled kills the handler while it waits, N times: its message is answered
// all the same, the lock it leaves is removed, and the next push is dispatched
// again. CONTRACTS 1.5, S0-71.
func TestShimKilled(t *testing.T) {
	n := min(drill.Size(t, "N", 1), 5)
	m := newMachine(t, t.TempDir())
	w := m.serve(nil)
	w.Create(t, agent, "")
	lock := filepath.Join(m.thread("inbox"), "run", "inbox.lock")
	for i := range n {
		m.push("ann", "slow: 3")
		m.must("thread", "dispatch", "--thread", m.thread("inbox")) // the notifier's part; it might lose it
		if err := syscall.Kill(m.shim("agent run "+agent), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(lock); err != nil {
			t.Errorf("the handler was killed and its lock is gone: %v", err)
		}
		m.delivered(2*i + 1)
		m.noLocks()
		m.push("bob", "slow: 3")
		m.must("thread", "dispatch", "--thread", m.thread("inbox"))
		m.shim("agent run " + agent) // dispatched again
		m.delivered(2*i + 2)
		m.noLocks()
	}
	sends := len(m.journal())
	if sends != 2*n {
		t.Errorf("%d sends for %d messages", sends, 2*n)
	}
	drill.Line("outside-kill-shim kills=%d messages=%d sends=%d", n, 2*n, sends)
}

// TestRunnerKilled kills the runner while a handler waits for it, N times: the
// handler ends with 1, and what it was started for is answered once.
func TestRunnerKilled(t *testing.T) {
	n := min(drill.Size(t, "N", 2), 10)
	m := newMachine(t, t.TempDir())
	m.agentd("registry")
	m.agentd("deliverer")
	runner := m.agentd("runner", "--lease-ttl", "1s")
	c := m.client()
	c.Create(t, agent, "")
	for i := range n {
		m.push("ann", "slow: 3")
		m.push("bob", fmt.Sprint("say: ", i))
		m.must("thread", "dispatch", "--thread", m.thread("inbox"))
		m.shim("agent run " + agent)
		runner.Kill()
		runner = m.agentd("runner", "--lease-ttl", "1s")
		m.delivered(2 * (i + 1))
	}
	m.noLocks()
	for _, peer := range []string{"ann", "bob"} {
		in, out := 0, 0
		for _, e := range c.Events(t, agent, "threads/peers/tui-main-"+peer, "type = 'message'") {
			if e.GetSource() == "self" {
				out++
			} else {
				in++
			}
		}
		if in != n || out != n {
			t.Errorf("%s: %d messages, %d replies, want %d of each", peer, in, out, n)
		}
	}
	drill.Line("outside-kill-runner kills=%d messages=%d answered_once=%d", n, 2*n, len(m.journal()))
}

// R8: TestSenderDies kills -9 the services while the gateway's program sends: the program
// and its child die with them, and what is sent again after the restart is flagged.
func TestSenderDies(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.write("script.json", `{"version":"1.0.9","failures":[{"match":"hangs","times":1,"end":"hang"}]}`)
	all := m.agentd("all")
	m.client().Create(t, agent, "")
	m.push("ann", "say: hangs")
	file := filepath.Join(m.user, ".config", "xgw", "hanging")
	m.await("a send that hangs", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && len(b) > 0
	})
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	held := func() bool { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil }
	m.await("the lock of the send", held) // the program writes the file first
	all.Kill()
	began := time.Now()
	for held() {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the program that sends outlived kill -9 of its deliverer by 10 s")
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
	gone := time.Since(began)
	m.agentd("all")
	sends := m.delivered(2)
	if len(sends) != 2 || sends[0].Maybe != "false" || sends[1].Maybe != "true" {
		t.Errorf("sends %+v", sends)
	}
	drill.Line("outside-kill-sender kills=1 outlived=0 gone_ms=%d flagged=%d", gone.Milliseconds(), len(sends)-1)
}

// TestNobodyThere runs the handler with no service: it ends with 1 at once enough,
// and leaves no lock that would stop the dispatches after it.
func TestNobodyThere(t *testing.T) {
	m := newMachine(t, t.TempDir())
	file := filepath.Join(m.thread("inbox"), "run", "inbox.lock")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	errs, code := m.run("agent", "run", agent)
	if _, err := os.Lstat(file); code != 1 || err == nil || !strings.HasPrefix(errs, "Error: nobody answers at ") {
		t.Errorf("exit %d after %s: %s; the lock: %v", code, time.Since(began), errs, err)
	}
}
