package docker

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// fakeProgram is the stand-in of docker, built once.
var fakeProgram string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakedocker-")
	if err != nil {
		panic(err)
	}
	fakeProgram = filepath.Join(dir, "docker")
	if out, err := exec.Command("go", "build", "-o", fakeProgram, "./testdata/fakedocker").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

const image = "openclaw-sandbox:bookworm-slim"

// host is a machine with docker.
type host struct {
	t     *testing.T
	dir   string // of the program and its state
	state string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.state = filepath.Join(h.dir, "state")
	must(t, errors.Join(os.Mkdir(h.state, 0o700), os.Link(fakeProgram, h.program())))
	h.write("images", image+"\n")
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(h.state, "down"))
		for _, id := range h.containers() {
			must(t, exec.Command(h.program(), "rm", "--force", id).Run())
		}
	})
	return h
}

func (h *host) program() string { return filepath.Join(h.dir, "docker") }

func (h *host) write(name, text string) {
	h.t.Helper()
	must(h.t, os.WriteFile(filepath.Join(h.state, name), []byte(text), 0o600))
}

// driver is a process that drives docker.
func (h *host) driver() *Driver {
	return New(Options{Program: h.program(), Home: "/home/a/.theclaw", Forbidden: []string{"/etc", "/proc", "/sys", "/run/docker.sock", h.dir}})
}

// containers are the ids of all.
func (h *host) containers() (ids []string) {
	h.t.Helper()
	names, err := filepath.Glob(filepath.Join(h.state, "*", "config.json"))
	must(h.t, err)
	for _, n := range names {
		ids = append(ids, filepath.Base(filepath.Dir(n)))
	}
	return ids
}

// calls are the verbs of all calls so far.
func (h *host) calls() string {
	h.t.Helper()
	f, err := os.Open(filepath.Join(h.state, "calls"))
	must(h.t, err)
	defer f.Close()
	var verbs []string
	for in := bufio.NewScanner(f); in.Scan(); {
		var args []string
		must(h.t, json.Unmarshal(in.Bytes(), &args))
		verbs = append(verbs, args[0])
	}
	must(h.t, os.Remove(f.Name()))
	return strings.Join(verbs, " ")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newBox is the container of agent a1 with a directory of its own, under a lease.
func newBox(t *testing.T, fence string) Box {
	t.Helper()
	return Box{DockerSandbox: settings(), Dir: t.TempDir(), Fence: fence}
}

func settings() *registrypb.DockerSandbox {
	return &registrypb.DockerSandbox{
		Container: "theclaw-sbx-agent-a1-d4f1bd6b", Image: image, Workdir: "/workspace", ReadOnlyRoot: true, Network: "none",
		CapDrop: []string{"ALL"}, Env: map[string]string{"LANG": "C.UTF-8"}, PruneIdle: durationpb.New(24 * time.Hour), PruneMaxAge: durationpb.New(7 * 24 * time.Hour),
	}
}

func (h *host) run(d *Driver, b Box, line string) sandbox.Result {
	h.t.Helper()
	r, err := d.In(b).Run(h.t.Context(), sandbox.Command{Shell: line})
	must(h.t, err)
	return r
}

// fifo makes a named pipe in the directory of a box and returns its path.
func fifo(t *testing.T, b Box, name string) string {
	t.Helper()
	path := filepath.Join(b.Dir, name)
	must(t, exec.Command("mkfifo", path).Run())
	return path
}

// readAll reads a pipe until no process writes to it any more; the test fails when that takes too long.
func readAll(t *testing.T, f *os.File) string {
	t.Helper()
	must(t, f.SetReadDeadline(time.Now().Add(time.Minute)))
	var b strings.Builder
	if _, err := bufio.NewReader(f).WriteTo(&b); err != nil {
		t.Fatalf("a process that was to be ended lives: %v", err)
	}
	return b.String()
}
