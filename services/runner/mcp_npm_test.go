package runner_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/testing/need"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// npmServer is the program of a server of npm, and the directory of all.
func npmServer(t *testing.T, name string) (program, dir string) {
	t.Helper()
	dir, err := filepath.Abs("../../.bin/mcp/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "@modelcontextprotocol", name, "dist", "index.js")
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, program, "run 'make examples'")
	}
	return program, dir
}

// killProgram kills every process with this argument; false: there is none.
func killProgram(t *testing.T, arg string) (found bool) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline") // gone: empty
		args := bytes.Split(line, []byte{0})
		if len(args) > 1 && filepath.Base(string(args[0])) == "node" && slices.ContainsFunc(args, func(a []byte) bool { return string(a) == arg }) {
			found = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	return found
}

// S3-59: the server `everything` of the protocol's authors: list, call, progress, cancel, and kill -9 in a call.
func TestNpmEverything(t *testing.T) {
	program, dir := npmServer(t, "server-everything")
	m := newMCP(t, "    every: {command: [node, '"+program+"'], paths: ['"+dir+"']}\n", "")
	if s := m.start("every"); s.GetState() != runnerpb.ServerState_SERVER_STATE_UP || s.GetTools() < 10 {
		t.Fatalf("started: %v", s)
	}
	m.approve("every")
	if text := m.call(`every__get-sum {"a":20,"b":22}`); !strings.Contains(text, "42") {
		t.Errorf("sum: %s", text)
	}
	if text := m.call(`every__get-tiny-image {}`); !strings.Contains(text, "image/png of ") {
		t.Errorf("image: %s", text)
	}
	if text := m.call(`every__get-env {}`); strings.Contains(text, "THECLAW_") {
		t.Errorf("env: %s", text)
	}
	long := func(seconds int) {
		m.last = m.say(m.shop, "a1", `call: every__trigger-long-running-operation {"duration":`+strconv.Itoa(seconds)+`,"steps":`+strconv.Itoa(2*seconds)+`}`)
		m.begins()
	}
	long(1)
	if end := m.wait(m.shop, "a1", m.last); !strings.Contains(end.GetText(), "completed") {
		t.Errorf("long: %v", end)
	}
	calls := func() int64 {
		r, err := m.shop.ListServers(t.Context(), &runnerpb.ListServersRequest{AgentId: "a1"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetServers()[0].GetCalls()
	}
	before := calls()
	long(60)
	m.until("the server has the call", func() bool { return calls() > before })
	if _, err := m.shop.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: m.last}); err != nil {
		t.Fatal(err)
	}
	if text := m.call(`every__echo {"message":"still here"}`); !strings.Contains(text, "still here") {
		t.Errorf("after a cancel: %s", text)
	}
	before = calls()
	long(2)
	m.until("the server has the call", func() bool { return calls() > before })
	if !killProgram(t, program) {
		t.Error("the server does not run")
	}
	if end := m.wait(m.shop, "a1", m.last); !strings.Contains(end.GetText(), "completed") {
		t.Errorf("killed in a read: %v", end)
	}
	r, err := m.shop.ListServers(t.Context(), &runnerpb.ListServersRequest{AgentId: "a1"})
	if err != nil || r.GetServers()[0].GetRestarts() != 1 {
		t.Errorf("servers: %v, %v", r, err)
	}
}

// The server `filesystem` works in the directory of the agent and sees no other.
func TestNpmFilesystem(t *testing.T) {
	program, dir := npmServer(t, "server-filesystem")
	m := newMCP(t, "    files: {command: [node, '"+program+"', .], paths: ['"+dir+"'], cwd: workdir}\n", "")
	if s := m.start("files"); s.GetState() != runnerpb.ServerState_SERVER_STATE_UP || s.GetTools() < 8 {
		t.Fatalf("started: %v", s)
	}
	m.approve("files")
	if pins, _ := m.listed("files"); pins["write_file"].GetClass() == "read" || pins["read_text_file"].GetClass() != "read" || pins["write_file"].GetState() != registrypb.PinState_PIN_STATE_APPROVED {
		t.Errorf("pins: %v", pins)
	}
	if text := m.call(`files__write_file {"path":"`+m.file("notes.md")+`","content":"by a server"}`, `files__read_text_file {"path":"`+m.file("notes.md")+`"}`); !strings.Contains(text, "by a server") {
		t.Errorf("read: %s", text)
	}
	if b, err := os.ReadFile(m.file("notes.md")); err != nil || string(b) != "by a server" {
		t.Errorf("%q, %v", b, err)
	}
	if text := m.call(`files__read_text_file {"path":"/etc/passwd"}`); !strings.Contains(text, "denied") {
		t.Errorf("outside: %s", text)
	}
}
