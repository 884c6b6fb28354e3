//go:build proof

package outside_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	"github.com/theclaw/agents/proofs/standin"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	defer standin.Clean()
	program.Main(m)
}

const (
	agent   = "bot"
	channel = "tui-main"
)

// machine is one user's machine: a HOME, a PATH with the external programs and the
// shim, a gateway's configuration, and no word of ours in its environment.
type machine struct {
	t    testing.TB
	user string   // HOME
	bin  string   // the programs
	env  []string // of every daemon and every command line
}

func newMachine(t testing.TB, user string) *machine {
	t.Helper()
	m := &machine{t: t, user: user, bin: standin.Dir(t, "cmd/agent")}
	m.env = []string{"PATH=" + m.bin + ":/usr/bin:/bin", "HOME=" + user}
	m.write("config.yaml", "channels:\n  - id: "+channel+"\n    type: tui\n")
	return m
}

// home is where the services are, by default.
func (m *machine) home() string { return filepath.Join(m.user, ".theclaw") }

func (m *machine) thread(id string) string {
	return filepath.Join(m.home(), "agents", agent, filepath.FromSlash(id))
}

// write puts a file beside the gateway's configuration.
func (m *machine) write(name, text string) {
	m.t.Helper()
	dir := filepath.Join(m.user, ".config", "xgw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// run runs a command line and answers its output and exit code.
func (m *machine) run(args ...string) (string, int) {
	m.t.Helper()
	c := exec.Command(filepath.Join(m.bin, args[0]), args[1:]...)
	c.Env = m.env
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() > 0 {
		return errs.String(), e.ExitCode()
	}
	if err != nil {
		m.t.Fatalf("%q: %v %s", args, err, &errs)
	}
	return string(out), 0
}

func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, code := m.run(args...)
	if code != 0 {
		m.t.Fatalf("%.300q: exit %d %s", args, code, out)
	}
	return out
}

// notifier starts the daemon; it loses that share of the tasks.
func (m *machine) notifier(losePercent int, seed uint64) {
	m.t.Helper()
	c := exec.Command(filepath.Join(m.bin, "notifier"), "start")
	c.Env = append(slices.Clone(m.env), fmt.Sprint("NOTIFIER_LOSE=", losePercent), fmt.Sprint("NOTIFIER_SEED=", seed))
	if out, err := c.CombinedOutput(); err != nil {
		m.t.Fatalf("start notifier: %v %s", err, out)
	}
	m.t.Cleanup(func() { m.run("notifier", "stop") })
}

// tasks counts the notifier's files of a state.
func (m *machine) tasks(state string) int {
	entries, _ := os.ReadDir(filepath.Join(m.user, ".local/share/notifier/tasks", state)) // absent: none
	return len(entries)
}

// agentd starts services on the machine, and answers a client of them.
func (m *machine) agentd(words ...string) *world.Process {
	m.t.Helper()
	p := program.Agentd(m.t)
	p.Env = m.env
	return p.Start(m.t, words...)
}

// client is the owner's, for setting up and for looking.
func (m *machine) client() world.Client {
	m.t.Helper()
	dial := func(name string) *grpc.ClientConn {
		c, err := rpc.Dial("unix://"+filepath.Join(m.home(), "run", name+".sock"), rpc.DialOptions{
			TokenPath: filepath.Join(m.home(), "run", "token"), WaitForReady: true, DefaultTimeout: time.Minute,
		})
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return world.NewClient(dial("registry"), dial("runner"))
}

// inbound is the content that the gateway pushes, its keys in its order.
func inbound(peer, text string) string {
	quote := func(s string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			panic(err) // a string always encodes
		}
		return strings.TrimSpace(b.String())
	}
	return fmt.Sprintf(`{"id":"5623861e-f940-45e4-8fef-f033319641f8","channel_id":%s,"peer_id":%s,"peer_name":null,"session_id":%[2]s,"text":%s,"attachments":[],"reply_to":null,"created_at":%s}`,
		quote(channel), quote(peer), quote(text), quote(time.Now().UTC().Format("2006-01-02T15:04:05.000Z")))
}

// push is what the gateway does with a message of a peer.
func (m *machine) push(peer, text string) {
	m.t.Helper()
	m.must("thread", "push", "--thread", m.thread("inbox"), "--source", "external:tui:"+channel+":dm:"+peer+":"+peer,
		"--type", "message", "--content", inbound(peer, text))
}

// sent is what the gateway was told to send.
type sent struct {
	At                           time.Time
	Channel, Peer, Session, Text string
	Maybe                        string
	OK                           bool
}

func (m *machine) journal() []sent {
	b, err := os.ReadFile(filepath.Join(m.user, ".config", "xgw", "journal.ndjson"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	var out []sent
	for line := range bytes.Lines(b) {
		var s sent
		if json.Unmarshal(line, &s) == nil { // the last line may be under way
			out = append(out, s)
		}
	}
	return out
}

// delivered waits until the gateway has sent so many messages.
func (m *machine) delivered(n int) []sent {
	m.t.Helper()
	var all []sent
	m.await(fmt.Sprintf("%d sends", n), func() bool {
		all = m.journal()
		return len(slices.DeleteFunc(slices.Clone(all), func(s sent) bool { return !s.OK })) >= n
	})
	return all
}

// await waits for something that files tell of and no call.
func (m *machine) await(what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); {
		if time.Now().After(end) {
			m.t.Fatalf("%s: never; the gateway has sent %d", what, len(m.journal()))
		}
		select {
		case <-m.t.Context().Done():
			m.t.FailNow()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// noLocks waits until no lock of our consumers stands in the way of a dispatch.
func (m *machine) noLocks() {
	m.t.Helper()
	m.await("the end of the handlers' locks", func() bool {
		found := false
		_ = filepath.WalkDir(filepath.Join(m.home(), "agents"), func(path string, _ os.DirEntry, _ error) error {
			found = found || strings.HasSuffix(path, "/run/inbox.lock") || strings.HasSuffix(path, "/run/outbound.lock")
			return nil // what goes while we walk is no lock
		})
		return !found
	})
}

// read answers a file, nothing while it is not there.
func (m *machine) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(b)
}
