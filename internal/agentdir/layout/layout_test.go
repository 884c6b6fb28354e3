package layout

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// as returns the fault in err or fails.
func as(t *testing.T, err error, code codes.Code, reason string) *fault.Error {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Fatalf("got %v (%+v), want %s %s", err, e, code, reason)
	}
	return e
}

var hostileThreads = []string{
	"", ".", "..", "/", "threads", "threads/", "threads//x", "threads/.", "threads/../inbox", "threads/peers/../../..",
	"inbox/", "inbox/x", "/etc", "memory", "workdir/x", "threads/peers/a/b/c", "threads/peers/a\x00", "threads/peers/a\nb",
	"threads/peers/\xff", `threads\peers`, "threads/" + strings.Repeat("x", 256), "threads/" + strings.Repeat("x/", 600), "./threads/main",
}

// SECURITY S8: hostile thread ids.
func TestValidThread(t *testing.T) {
	for _, id := range []string{"inbox", "threads/main", "threads/peers/cli-cli", "threads/a/b/c", "threads/peers/Old Name"} {
		if err := ValidThread(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range hostileThreads {
		if e := as(t, ValidThread(id), codes.InvalidArgument, fault.InvalidArgument); len(e.What) > 400 {
			t.Errorf("%d bytes of message", len(e.What))
		}
	}
}

// S0-142.
func TestDefaultHome(t *testing.T) {
	for _, c := range []struct{ theclaw, home, want string }{
		{"/t", "/h", "/t"}, {"", "/h", "/h/.theclaw"}, {"~/x", "/h", "/h/x"}, {"/t/../u/", "", "/u"},
	} {
		env := map[string]string{"THECLAW_HOME": c.theclaw, "HOME": c.home}
		if got, err := DefaultHome(func(k string) string { return env[k] }); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	for name, want := range map[string]string{"dev": "/t-dev", "": "/t", "Dev": "", "a/b": "", strings.Repeat("x", 33): ""} { // S2-05
		env := map[string]string{"THECLAW_HOME": "/t/", "THECLAW_PROFILE": name}
		if got, err := DefaultHome(func(k string) string { return env[k] }); got != want || (err == nil) != (want != "") {
			t.Errorf("profile %q: %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := DefaultHome(func(k string) string { return map[string]string{"THECLAW_HOME": "rel"}[k] }); err != nil || !filepath.IsAbs(got) {
		t.Errorf("relative: %q, %v", got, err)
	}
	for _, bad := range []string{"", "~/x", "/a\nb", "/a\x00"} {
		if got, err := DefaultHome(func(k string) string { return map[string]string{"THECLAW_HOME": bad}[k] }); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestHomePaths(t *testing.T) {
	h := At("/t")
	for got, want := range map[string]string{
		h.RunDir(): "run", h.TokenFile(): "run/token", h.LockFile(): "run/registry.lock", h.HoldersDir(): "run/holders",
		h.AgentsDir(): "agents", h.RegistryDB(): "registry.db", h.DefaultsFile(): "theclaw.yaml",
	} {
		if got != filepath.Join(h.Path(), want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if s, err := At("/t").Socket("registry"); err != nil || s != "/t/run/registry.sock" {
		t.Errorf("%s, %v", s, err)
	}
	if s, err := At("/" + strings.Repeat("x", 107-len("/")-len("/run/runner.sock"))).Socket("runner"); err != nil || len(s) != 107 {
		t.Errorf("a path of %d bytes: %v", len(s), err)
	}
	_, err := At("/" + strings.Repeat("x", 108-len("/")-len("/run/runner.sock"))).Socket("runner")
	if e := as(t, err, codes.FailedPrecondition, fault.InvalidArgument); !strings.Contains(e.Fix, "shorter") {
		t.Errorf("no way out: %q", e.Fix)
	}
	for _, bad := range []string{"", "../x", "a/b", "A"} {
		if _, err := At("/t").Socket(bad); err == nil {
			t.Errorf("socket of service %q", bad)
		}
	}
}

func TestResolveThread(t *testing.T) {
	h := At(t.TempDir())
	dir := h.AgentDir("a1")
	if err := os.MkdirAll(filepath.Join(dir, "threads/main"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(h.Path(), link); err != nil {
		t.Fatal(err)
	}
	// A home over a symbolic link, in either direction.
	for _, c := range [][2]string{{link, filepath.Join(h.Path(), "agents/a1/threads/main")}, {h.Path(), filepath.Join(link, "agents/a1/threads/main")}} {
		if agent, thread, err := ResolveThread(c[0], c[1]); err != nil || agent != "a1" || thread != "threads/main" {
			t.Errorf("%v: %s, %s, %v", c, agent, thread, err)
		}
	}
	for _, p := range []string{
		"", "agents/a1/inbox", "/etc/passwd", h.Path(), h.AgentsDir(), dir, dir + "/workdir", dir + "/../../x",
		h.AgentsDir() + "/A1/inbox", h.AgentsDir() + "/../run", dir + "/threads/\x00", filepath.Dir(h.Path()) + "/agents/a1/inbox",
	} {
		if agent, thread, err := ResolveThread(h.Path(), p); err == nil {
			t.Errorf("%q: %s, %s", p, agent, thread)
		}
	}
}

func FuzzID(f *testing.F) {
	for _, s := range append(slices.Clone(hostileThreads), "a1", "threads/peers/cli-cli", "inbox") {
		f.Add(s)
	}
	h := At("/home-of-agents")
	f.Fuzz(func(t *testing.T, s string) {
		if ValidID(s) == nil {
			if d := h.AgentDir(s); filepath.Dir(d) != h.AgentsDir() || filepath.Base(d) != s {
				t.Fatalf("%q: %s", s, d)
			}
		}
		if ValidThread(s) == nil {
			path := filepath.Join("/home-of-agents/agents/a1", s)
			if agent, thread, err := ResolveThread("/home-of-agents", path); err != nil || agent != "a1" || thread != s {
				t.Fatalf("%q: %s, %s, %v", s, agent, thread, err)
			}
		}
	})
}
