package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/need"
)

// realDocker is a driver of docker and an image that it has. The test is skipped where there is none: the merge gate
// needs no docker, since the stand-in shows the same.
func realDocker(t *testing.T) (*Driver, string) {
	t.Helper()
	d := New(Options{Home: t.TempDir()})
	why := error(nil)
	for _, name := range []string{image, "debian:bookworm-slim", "debian:stable-slim", "ubuntu:24.04", "ubuntu:latest", "alpine:latest", "busybox:latest"} {
		b := newBox(t, "")
		b.Image = name
		if why = d.Problem(t.Context(), b); why == nil {
			return d, name
		}
	}
	need.Inapplicable(t, "no docker with an image to run: "+why.Error())
	return nil, ""
}

// S4-72, S4-76: a command in a container of docker itself: its user, its directory, its network, its result, and its
// end when it is canceled.
func TestRealDocker(t *testing.T) {
	d, name := realDocker(t)
	b := newBox(t, "agent/real=1")
	b.Image, b.Container = name, "theclaw-test-"+strings.ToLower(filepath.Base(filepath.Dir(b.Dir)))
	t.Cleanup(func() {
		list, err := d.list(context.Background(), labelName+"="+b.GetContainer())
		must(t, err)
		for _, f := range list {
			must(t, d.remove(context.Background(), f.id))
		}
	})
	r, err := d.In(b).Run(t.Context(), sandbox.Command{Shell: "pwd; echo $LANG >file; echo err >&2; touch /usr/x; ls /sys/class/net; exit 3"})
	must(t, err)
	if lines := strings.Fields(string(r.Stdout)); len(lines) != 2 || lines[0] != "/workspace" || lines[1] != "lo" || r.ExitCode != 3 {
		t.Errorf("result %+v: %s %s", r, r.Stdout, r.Stderr)
	}
	file, err := os.ReadFile(filepath.Join(b.Dir, "file"))
	must(t, err)
	if string(file) != "C.UTF-8\n" {
		t.Errorf("file %q", file)
	}
	if errs := string(r.Stderr); !strings.HasPrefix(errs, "err\n") || !strings.Contains(errs, "Read-only") {
		t.Errorf("it can write outside of its directory: %s", errs)
	}
	path := fifo(t, b, "alive")
	alive, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	reader, err := os.Open(path)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r, err = d.In(b).Run(ctx, sandbox.Command{Shell: "exec 9>alive; mkfifo gate; echo ready; read x <gate; echo >later", OnStdout: func([]byte) { cancel() }})
	cancel()
	must(t, err)
	if !r.Canceled || r.ExitCode != killed {
		t.Errorf("result %+v", r)
	}
	must(t, alive.Close())
	readAll(t, reader)
	must(t, reader.Close())
	if _, err := os.Stat(filepath.Join(b.Dir, "later")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command has gone on: %v", err)
	}
}
