package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/standin/pai/chat"
)

const (
	// markAgentd makes the test binary be agentd.
	markAgentd = "THECLAW_TEST_AGENTD"
	// failpoint is "label:hit[:stop|:say|:panic]": at that hit of the label the process
	// kills itself with SIGKILL, or stops itself, or only says so, or panics with the
	// text of panics. Only the test binary knows it.
	failpoint = "THECLAW_FAILPOINT"
	panics    = "THECLAW_PANIC"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	if filepath.Base(os.Args[0]) == "pai" { // this binary is its own stand-in for pai
		os.Exit(chat.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	if os.Getenv(markAgentd) != "" {
		if spec := os.Getenv(failpoint); spec != "" {
			arm(spec)
		}
		if dir := os.Getenv(traps); dir != "" {
			lookOut(dir)
		}
		if os.Getenv(ackFirst) != "" {
			acknowledgeFirst()
		}
		os.Exit(Main(os.Args[1:], os.Getenv, os.Stderr))
	}
	os.Exit(m.Run())
}

// arm sets the failpoint of this process.
func arm(spec string) {
	label, rest, _ := strings.Cut(spec, ":")
	count, what, _ := strings.Cut(rest, ":")
	at, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		panic("failpoint " + spec + ": " + err.Error())
	}
	sig := map[string]syscall.Signal{"": syscall.SIGKILL, "stop": syscall.SIGSTOP, "say": 0, "panic": 0}[what]
	var hits atomic.Int64
	fault.SetPoint(func(l string) {
		if l != label || hits.Add(1) != at {
			return
		}
		fmt.Fprintln(os.Stderr, "failpoint", spec)
		if what == "panic" {
			panic(os.Getenv(panics))
		}
		_ = syscall.Kill(os.Getpid(), sig)
		if sig == syscall.SIGKILL {
			select {} // the signal is on its way; nothing may happen any more
		}
	})
}

// ackFirst makes this agentd acknowledge what platforms deliver before it is stored, which is the
// control of the matrix of channels.
const ackFirst = "THECLAW_TEST_ACK_FIRST"

func acknowledgeFirst() {
	for i, t := range catalog.Types {
		if t.Receive == nil {
			continue
		}
		catalog.Types[i].Receive = func(name string, d channel.Definition, deps channel.Deps) (channel.Receiver, error) {
			r, err := t.Receive(name, d, deps)
			return earlyReceiver{r}, err
		}
	}
}

type earlyReceiver struct{ channel.Receiver }

func (r earlyReceiver) Receive(ctx context.Context, in channel.Intake) error {
	return r.Receiver.Receive(ctx, earlyIntake{in})
}

type earlyIntake struct{ channel.Intake }

func (i earlyIntake) Take(ctx context.Context, u channel.Update, stored func()) error {
	stored()
	return i.Intake.Take(ctx, u, func() {})
}

// program is this test binary as agentd.
func program(t testing.TB) world.Program {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return world.Program{Path: path, Env: []string{markAgentd + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
}

// setting is a number from the environment: the size of a drill.
func setting(t testing.TB, name string, def int64) int64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// flags give leases that a stalled process does not lose, and that a killed one does not
// keep for long where nobody sees that it is dead.
var flags = []string{"--lease-ttl", "3s", "--log-level", "debug"}

var everything = []string{"registry", "runner", "deliverer", "gateway"}

// traps names a directory that the processes of a cluster look into whenever they pass
// a label, so that nobody need be started again to be killed there, and of several
// processes that pass it exactly one is. In a directory of the label's name lies a file
// for each time that somebody may pass, and then one that says what happens: kill or
// stop. Who removes a file has passed it.
const traps = "THECLAW_FAILPOINTS"

func lookOut(dir string) {
	fault.SetPoint(func(label string) {
		at := filepath.Join(dir, label)
		names, _ := os.ReadDir(at) // sorted; none: no trap is set
		for _, n := range names {
			if os.Remove(filepath.Join(at, n.Name())) != nil {
				continue // another process was here before
			}
			sig, armed := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[n.Name()]
			if !armed {
				return
			}
			fmt.Fprintln(os.Stderr, "failpoint", label)
			_ = os.WriteFile(at+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
			_ = syscall.Kill(os.Getpid(), sig)
			if sig == syscall.SIGKILL {
				select {} // the signal is on its way; nothing may happen any more
			}
			return
		}
	})
}
