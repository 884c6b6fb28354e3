package chat_test

import (
	"bufio"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/proofs/standin/pai/chat"
)

// TestMain makes the test binary be pai when it is called so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "pai" {
		os.Exit(chat.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	os.Exit(m.Run())
}

// start runs pai in the middle of a tool that has said its number and waits.
func start(t *testing.T, dir string) (cmd *exec.Cmd, events *bufio.Scanner, bash int) {
	t.Helper()
	server := httptest.NewServer(&recorder{once: map[string]bool{}})
	t.Cleanup(server.Close)
	config := filepath.Join(dir, "c.json")
	text := fmt.Sprintf(`{"defaultProvider":"f","providers":[{"name":"f","apiKey":"k","baseUrl":%q,"defaultModel":"m"}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, "chat", "--json", "--stream", "--session", filepath.Join(dir, "s.jsonl"), "TOOL:echo start; echo $$ > "+fifo+"; sleep 60 & wait")
	cmd.Args[0] = "pai"
	cmd.Env = []string{"PAI_CONFIG=" + config, "PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	b, err := os.ReadFile(fifo) // waits for the writer
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &bash); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-bash, syscall.SIGKILL) })
	return cmd, bufio.NewScanner(stderr), bash
}

// SIGTERM ends the tool; the model is asked once more and the session is written
// (recorded call 34).
func TestTerminated(t *testing.T) {
	dir := t.TempDir()
	cmd, events, _ := start(t, dir)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for events.Scan() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(events.Text(), `{"type":"`), `"`)
		kinds = append(kinds, kind)
		if kind == "tool_result" && !strings.Contains(events.Text(), `"stderr":"\n[Aborted: session was terminated externally.]","exitCode":130`) {
			t.Errorf("told %s", events.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if got := strings.Join(kinds, " "); got != "start complete tool_call tool_result start complete" {
		t.Errorf("events %s", got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "s.jsonl")); err != nil || strings.Count(string(b), "\n") != 4 {
		t.Errorf("session %s, %v", b, err)
	}
}

// SIGKILL leaves the tool running and the session unwritten (recorded call 35).
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd, _, bash := start(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := syscall.Kill(bash, 0); err != nil {
		t.Errorf("the tool is gone: %v", err)
	}
	if pgid, err := syscall.Getpgid(bash); err != nil || pgid != bash {
		t.Errorf("group %d of process %d, %v", pgid, bash, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "s.jsonl")); !os.IsNotExist(err) {
		t.Errorf("session: %v", err)
	}
}
