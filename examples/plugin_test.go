//go:build proof

package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// lines is the directory that is the platform of examples/plugin/lines.py.
type lines struct {
	dir    string
	python string
}

// newLines is one whose socket has a short path.
func newLines(t *testing.T) lines {
	t.Helper()
	if _, err := os.Stat("plugin/gen/theclaw/channel/v1/plugin_pb2.py"); err != nil {
		need.Missing(t, "examples/plugin/gen", "run 'make examples'")
	}
	dir, err := os.MkdirTemp("", "lines")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return lines{dir, python(t)}
}

// start starts the program, and returns when it listens. kill ends it as SIGKILL does.
func (l lines) start(t *testing.T) (kill func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), l.python, "plugin/lines.py", l.dir)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stderr)
	if !out.Scan() || !strings.HasPrefix(out.Text(), "listening at unix:/") {
		t.Fatalf("%q, %v", out.Text(), out.Err())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for out.Scan() {
			t.Log(out.Text())
		}
		_ = c.Wait() // it was killed
	}()
	kill = func() { _ = c.Process.Kill(); <-ended }
	t.Cleanup(kill)
	return kill
}

func (l lines) say(t *testing.T, peer, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(l.dir, "in.txt"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%s %s\n", peer, text)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replies are the texts that each person was sent.
func (l lines) replies(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, "out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		var m struct{ To, Text string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[m.To] = append(out[m.To], m.Text)
	}
	return out
}

// await waits for so many replies; nothing reports a change of a file.
func (l lines) await(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(2 * time.Minute); ; {
		got := 0
		for _, list := range l.replies(t) {
			got += len(list)
		}
		if got >= n {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%d replies, not %d", got, n)
		}
	}
}

// S2-16, S3-104, S4-68: a channel in Python is used by the services as a built-in one. It is killed
// while messages are on their way and started again, and so is agentd: nothing is lost, nothing is
// doubled, and each person reads the answers in their order.
func TestPlugin(t *testing.T) {
	l := newLines(t)
	w := world.NewSite(t, program.Agentd(t))
	if err := os.MkdirAll(w.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("gateway: {http: \"off\"}\nchannels:\n  lines: {type: plugin, plugin: \"unix:%s/lines.sock\", dm: open}\n", l.dir)
	if err := os.WriteFile(filepath.Join(w.Home, "theclaw.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	kill := l.start(t)
	agentd := w.Start(t, "all")
	w.Create(t, "alice", "")
	people, written := []string{"ann", "bob", "cy"}, 0
	say := func(n int) {
		for range n {
			for _, p := range people {
				l.say(t, p, fmt.Sprintf("say: %d", written))
			}
			written++
		}
	}
	say(3)
	l.await(t, 1)
	kill() // some messages are not confirmed, some replies not answered
	say(3)
	kill = l.start(t)
	l.await(t, 4*len(people))
	say(3)
	kill()
	agentd.Kill()
	w.Start(t, "all")
	say(1)
	l.start(t)
	l.await(t, written*len(people))
	r, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "alice", PageSize: 1000})
	if err != nil || len(r.GetTurns()) != written*len(people) {
		t.Errorf("%d messages are stored, not %d; %v", len(r.GetTurns()), written*len(people), err)
	}
	var want []string
	for n := range written {
		want = append(want, fmt.Sprint(n))
	}
	got := l.replies(t)
	for _, p := range people {
		if !slices.Equal(got[p], want) {
			t.Errorf("%s reads %q", p, got[p])
		}
	}
}
