package world_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-91: a tool of agent a1 cannot read the workspace, the conversations, the memory or the
// settings of agent b1, in none of these ways; each is made by an agent without a sandbox too,
// which reads them, so that each shows something.
func TestAToolReadsNoOtherAgent(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "")
	w.Create(t, "open", "sandbox: {mode: off}")
	secret := "canary-" + rand.Text()
	w.Create(t, "b1", "# "+secret)
	if got := w.Reply(t, w.Say(t, "b1", world.Peer("bob"), "say: "+secret)); got != secret {
		t.Fatalf("b1 answers %q", got)
	}
	if got := w.Reply(t, w.Say(t, "a1", world.Peer("eve"), "run: echo mine > note && cat note")); !strings.Contains(got, "mine") {
		t.Fatalf("a1 reads %q in its own workspace", got)
	}
	dir := filepath.Join(w.Home, "agents", "b1")
	w.Say(t, "b1", world.Peer("bob"), "run: echo "+secret+" > note")
	if b, err := os.ReadFile(filepath.Join(dir, "workdir", "note")); err != nil || string(b) != secret+"\n" {
		t.Fatalf("the workspace has %q, %v", b, err)
	}
	if _, err := w.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "b1", Name: "memory/agent.md", Content: []byte(secret)}); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	far, err := filepath.Rel(here, dir)
	if err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d", os.Getpid())
	const found = "| grep -ao 'canary-[A-Z2-7]*' | head -n 3"
	ways := []struct{ name, command string }{
		{"workspace by its path", "cat " + dir + "/workdir/note"},
		{"workspace by ..", "cat ../../b1/workdir/note"},
		{"workspace by /proc/self/cwd", "cat /proc/self/cwd/../../b1/workdir/note"},
		{"workspace by the root of the service", "cat " + proc + "/root" + dir + "/workdir/note"},
		{"workspace by the directory of the service", "cat " + proc + "/cwd/" + far + "/workdir/note"},
		{"workspace by a link to a file", "ln -sf " + dir + "/workdir/note l1 && cat l1"},
		{"workspace by a link to a directory", "ln -sfn " + dir + " l2 && cat l2/workdir/note"},
		{"workspace by a relative link", "ln -sfn ../../b1 l3 && cat l3/workdir/note"},
		{"workspace by a hard link", "ln -f " + dir + "/workdir/note l4 && cat l4"},
		{"workspace from within", "cd " + dir + "/workdir && cat note"},
		{"workspace as input", "read x < " + dir + "/workdir/note && echo $x"},
		{"workspace by a copy", "cp -r " + dir + "/workdir copy && cat copy/note"},
		{"workspace by an archive", "tar cf - -C " + dir + " workdir " + found},
		{"workspace by its name", "find " + w.Home + " -name note -exec cat {} +"},
		{"inbox", "cat " + dir + "/inbox/events.db* " + found},
		{"lines of the inbox", "cat " + dir + "/inbox/events.jsonl " + found},
		{"conversation", "cat " + dir + "/threads/peers/main-bob/events.db* " + found},
		{"lines of the conversation", "cat ../../b1/threads/peers/main-bob/events.jsonl " + found},
		{"memory", "cat " + dir + "/memory/agent.md"},
		{"settings", "cat ../../b1/config.yaml " + found},
		{"everything", "grep -rah canary- " + w.Home + "/agents/b1 " + found},
	}
	read := 0
	for _, way := range ways {
		say := func(agent string) string {
			t.Helper()
			return w.Reply(t, w.Say(t, agent, world.Peer("eve"), "run: "+way.command))
		}
		if got := say("open"); !strings.Contains(got, secret) {
			t.Errorf("%s: without a sandbox it reads %q: the way shows nothing", way.name, got)
		}
		if got := say("a1"); got == "" || strings.Contains(got, secret) {
			read++
			t.Errorf("%s: it reads %q", way.name, got)
		}
	}
	t.Logf("figures: ways=%d read=%d", len(ways), read)
}
