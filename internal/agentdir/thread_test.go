package agentdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// SECURITY S8 and path traversal: a thread stays in its agent.
func TestThread(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	for _, id := range []string{"inbox", "threads/main", "threads/peers/cli-cli", "threads/channels/tg", "threads/peers/%2E%2E", "threads/peers/Old Name", "threads/a/b/c"} {
		path, err := d.Thread(id)
		if err != nil || path != filepath.Join(d.Path, id) {
			t.Errorf("%s: %s, %v", id, path, err)
		}
		if back, err := d.ThreadOf(path + "/"); err != nil || back != id {
			t.Errorf("%s: back %s, %v", id, back, err)
		}
		for _, p := range []string{path, path + "/", filepath.Dir(path) + "/./" + filepath.Base(path)} {
			if agent, thread, err := layout.ResolveThread(h.Path(), p); err != nil || agent != "a1" || thread != id {
				t.Errorf("%s: %s, %s, %v", p, agent, thread, err)
			}
		}
	}
	for _, id := range []string{"", "..", "threads/../inbox", "inbox/x", "/etc", "threads/peers/../../..", "memory", "threads/peers/a\x00"} {
		_, err := d.Thread(id)
		as(t, err, codes.InvalidArgument, fault.InvalidArgument)
	}
	if err := errors.Join(os.Symlink("/etc", filepath.Join(d.Path, "threads", "peers", "out")),
		os.Symlink("../channels", filepath.Join(d.Path, "threads", "peers", "in"))); err != nil {
		t.Fatal(err)
	}
	_, err := d.Thread("threads/peers/out")
	as(t, err, codes.PermissionDenied, fault.PermissionDenied)
	if _, err := d.Thread("threads/peers/in"); err != nil {
		t.Errorf("a link inside: %v", err)
	}
	gone, err := h.Agent("gone")
	if err != nil {
		t.Fatal(err)
	}
	_, err = gone.Thread("inbox")
	as(t, err, codes.NotFound, fault.AgentNotFound)
	if err := gone.Check(); !fault.Is(err, fault.AgentNotFound) || d.Check() != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestListThreads(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	want := []string{"threads/channels/tg", "threads/main", "threads/peers/a", "threads/peers/a-b", "threads/peers/a/b", "threads/sessions/x-1"}
	for _, id := range []string{"threads/channels/tg", "threads/main", "threads/peers/a-b", "threads/sessions/x-1"} {
		write(t, filepath.Join(d.Path, id, "events.db"), "")
	}
	write(t, filepath.Join(d.Path, "threads/peers/a/b/events.db"), "")
	write(t, filepath.Join(d.Path, "threads/peers/a/b/run/events.db"), "")          // inside a thread
	write(t, filepath.Join(d.Path, "threads/peers/deep/er/than/all/events.db"), "") // no id reaches it
	write(t, filepath.Join(d.Path, "threads/peers/events.txt"), "")
	want = slices.DeleteFunc(want, func(s string) bool { return s == "threads/peers/a" }) // holds no events.db
	if err := os.Symlink("/", filepath.Join(d.Path, "threads/peers/root")); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ListThreads(t.Context(), "", 100); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	var paged []string
	for after := ""; ; {
		page, err := d.ListThreads(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, page...)
		if len(page) < 2 {
			break
		}
		after = page[1]
	}
	if !slices.Equal(paged, want) {
		t.Errorf("page by page %q", paged)
	}
	if err := os.RemoveAll(filepath.Join(d.Path, "threads")); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ListThreads(t.Context(), "", 10); err != nil || len(got) != 0 {
		t.Errorf("no threads: %q, %v", got, err)
	}
}
