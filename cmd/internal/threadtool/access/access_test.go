package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// CONTRACTS 1.1: how a path is read; a link stays a link, a / at the end stays.
func TestAbsolute(t *testing.T) {
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/a/b": "/a/b", "/a/b/": "/a/b/", "/a//b/../c": "/a/c", "/a/b/.": "/a/b", "/": "/", "~/x": "/h/x", "~x": cwd + "/~x", "x/": cwd + "/x/", ".": cwd,
	} {
		if got, err := absolute(path, "/h"); err != nil || got != want {
			t.Errorf("%q is %q, want %q: %v", path, got, want, err)
		}
	}
}

// A thread of a home is known by the home that the environment names, and
// without one by the shape of what is around it; anything else is a directory.
func TestAt(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "h")
	for _, dir := range []string{"run", "agents/a1/inbox", "agents/a1/threads/agents/x"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(root, "bare") // no registry ever ran here
	for path, want := range map[string][3]string{
		home + "/agents/a1/inbox":              {home, "a1", "inbox"},
		home + "/agents/a1/inbox/":             {home, "a1", "inbox"},
		home + "/agents/a1/threads/agents/x":   {home, "a1", "threads/agents/x"},
		home + "/agents/a1/threads/not/yet":    {home, "a1", "threads/not/yet"},
		link + "/agents/a1/inbox":              {home, "a1", "inbox"},
		home + "/agents/a1/workdir":            {},
		home + "/agents/A1/inbox":              {},
		home + "/run":                          {},
		bare + "/agents/a1/inbox":              {},
		filepath.Join(root, "elsewhere/inbox"): {},
	} {
		for _, named := range []string{"", home, root} {
			env := command.New(nil, nil, nil, func(name string) string { return map[string]string{"THECLAW_HOME": named}[name] }, "test")
			p, err := At(env, path)
			if err != nil || [3]string{p.Home, p.Agent, p.Thread} != want {
				t.Errorf("%s with THECLAW_HOME=%q: %+v, %v", path, named, p, err)
			}
		}
	}
	env := command.New(nil, nil, nil, func(name string) string { return map[string]string{"THECLAW_HOME": bare}[name] }, "test")
	if p, err := At(env, bare+"/agents/a1/inbox"); err != nil || p.Home != bare {
		t.Errorf("a home that is named needs no run/: %+v, %v", p, err)
	}
}

// Every error of the storage contract that a guest can get says what to do.
func TestFaults(t *testing.T) {
	p := Place{Dir: "/d"}
	for _, err := range []error{
		store.ErrNotFound, store.ErrNoConsumer, store.ErrConsumerExists, store.ErrBusy, store.ErrDiskFull, store.ErrReadOnly,
		store.ErrCorrupt, store.ErrIO, errors.New("anything else"),
	} {
		f := fault.From(Fault(p, err))
		if f.What == "" || f.Fix == "" || !errors.Is(f, err) || errors.Is(Fault(p, f), store.ErrClosed) {
			t.Errorf("%v: %+v", err, f)
		}
	}
	if Fault(p, nil) != nil {
		t.Error("nothing is something")
	}
}
