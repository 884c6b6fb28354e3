package agentdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

func openHome(t testing.TB) *Home {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func create(t testing.TB, h *Home, id string) Dir {
	t.Helper()
	d, err := h.Create(id, Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// as returns the fault in err or fails.
func as(t *testing.T, err error, code codes.Code, reason string) *fault.Error {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Fatalf("got %v (%+v), want %s %s", err, e, code, reason)
	}
	return e
}

// S0-05, SECURITY S8: no id leads anywhere else.
func TestValidID(t *testing.T) {
	for _, id := range []string{"a", "0", "a1", "a-b_c", strings.Repeat("a", 64)} {
		if err := layout.ValidID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	h := openHome(t)
	for _, id := range []string{"", ".", "..", "../x", "A/B", "a/b", "A", "-a", "_a", strings.Repeat("a", 65), "a\n", "a\x00", "a b", "ä", "a;b", "$(x)", "%2e", strings.Repeat("x", 4096)} {
		e := as(t, layout.ValidID(id), codes.InvalidArgument, fault.InvalidArgument)
		if !strings.Contains(e.Fix, "lower-case letters") || len(e.What) > 200 || strings.ContainsAny(e.What, "\n\x00") {
			t.Errorf("%q: %q - %q", id, e.What, e.Fix)
		}
		if _, err := h.Create(id, Spec{}); err == nil {
			t.Errorf("%q was created", id)
		}
		if _, err := h.Agent(id); err == nil {
			t.Errorf("%q has a directory", id)
		}
	}
	if entries, err := os.ReadDir(h.AgentsDir()); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOpenHomeIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wide")
	if err := os.MkdirAll(filepath.Join(path, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := OpenHome(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	checkModes(t, path)
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = OpenHome(path)
	as(t, err, codes.FailedPrecondition, fault.PermissionDenied)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, path := range []string{file, file + "/below"} {
		_, err := OpenHome(path)
		if e := as(t, err, codes.FailedPrecondition, fault.InvalidArgument); !strings.Contains(fault.Line(e), path) {
			t.Errorf("the error does not name %s: %v", path, e)
		}
	}
}

// S9: only 0700 and 0600.
func checkModes(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()]; err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// S0-01, S0-02, S0-26, S0-33, S0-35, S9: the tree of the earlier tool, with a place
// for threads by session, and nothing outside it.
func TestCreate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // the widest umask must not matter
	h := openHome(t)
	d, err := h.Create("a1", Spec{Prepare: func(dir string) error {
		for _, f := range []string{"events.db", "events.jsonl", "run/x", "logs/x"} {
			path := filepath.Join(dir, "inbox", f)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("testdata/03-init-tree.txt")
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(recorded) + " threads/sessions") {
		if _, err := os.Stat(filepath.Join(d.Path, path)); err != nil {
			t.Error(err)
		}
	}
	checkModes(t, h.Path())
	for got, want := range map[string]string{d.Inbox(): "inbox", d.Memory(): "memory", d.Sessions(): "sessions", d.Workdir(): "workdir", d.Logs(): "logs", d.RunLock(): "run.lock"} {
		if got != filepath.Join(h.Path(), "agents/a1", want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	a, err := h.Load("a1")
	if err != nil || a.Config.Kind != "user" || a.Config.Outbound != nil {
		t.Errorf("S0-03: %+v, %v", a, err)
	}
	if entries, err := os.ReadDir(h.AgentsDir()); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// S0-04: the second one changes nothing and has the exact words.
func TestCreateTwice(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	before, _, err := d.ReadFile("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Create("a1", Spec{Kind: "system"})
	e := as(t, err, codes.AlreadyExists, fault.AgentExists)
	if want := "Error: Agent 'a1' already exists at " + d.Path + " - remove the directory first or choose a different id"; fault.Line(e) != want {
		t.Errorf("got  %s\nwant %s", fault.Line(e), want)
	}
	if after, _, err := d.ReadFile("config.yaml"); err != nil || string(after) != string(before) {
		t.Errorf("config.yaml was changed: %v", err)
	}
}

// S0-04: of concurrent creations exactly one wins, whole, and nothing is left.
func TestCreateConcurrently(t *testing.T) {
	h := openHome(t)
	for round := range 20 {
		id := fmt.Sprintf("a%d", round)
		var wg sync.WaitGroup
		ready := make(chan struct{})
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = h.Create(id, Spec{Prepare: func(dir string) error {
					<-ready // all are past the first look
					return os.WriteFile(filepath.Join(dir, "winner"), fmt.Append(nil, i), 0o600)
				}})
			})
		}
		close(ready)
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won < 0:
				won = i
			case err == nil:
				t.Fatal("two creations succeeded")
			default:
				as(t, err, codes.AlreadyExists, fault.AgentExists)
			}
		}
		data, err := os.ReadFile(filepath.Join(h.AgentsDir(), id, "winner"))
		if err != nil || string(data) != fmt.Sprint(won) {
			t.Fatalf("winner %d, directory of %s, %v", won, data, err)
		}
	}
	if entries, err := os.ReadDir(h.AgentsDir()); err != nil || len(entries) != 20 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// Bad input and failures leave nothing behind.
func TestCreateFails(t *testing.T) {
	h := openHome(t)
	boom := errors.New("boom")
	for _, c := range []struct {
		spec Spec
		want func(error) bool
	}{
		{Spec{Prepare: func(string) error { return boom }}, func(err error) bool { return errors.Is(err, boom) }},
		{Spec{Prepare: func(string) error { return &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC} }}, func(err error) bool { return fault.Is(err, fault.DiskFull) }},
		{Spec{Prepare: func(dir string) error { return os.Symlink("/etc", filepath.Join(dir, "inbox", "x")) }}, func(err error) bool { return err != nil }},
		{Spec{Kind: "foo"}, func(err error) bool {
			return fault.Is(err, fault.ConfigInvalid) && strings.Contains(err.Error(), "is not one of system, user")
		}},
		{Spec{Model: "a\nkind: system"}, func(err error) bool { return fault.Is(err, fault.ConfigInvalid) }},
		{Spec{Identity: []byte("\xff")}, func(err error) bool { return fault.Is(err, fault.InvalidArgument) }},
		{Spec{Usage: make([]byte, MaxFileSize+1)}, func(err error) bool { return fault.Is(err, fault.InvalidArgument) }},
	} {
		if _, err := h.Create("a1", c.spec); err == nil || !c.want(err) {
			t.Errorf("%+v: %v", c.spec.Kind, err)
		}
		if entries, err := os.ReadDir(h.AgentsDir()); err != nil || len(entries) != 0 {
			t.Fatalf("left behind: %v, %v", entries, err)
		}
	}
	// Something else has the name already.
	if err := os.Symlink("/etc", filepath.Join(h.AgentsDir(), "link")); err != nil {
		t.Fatal(err)
	}
	_, err := h.Create("link", Spec{})
	as(t, err, codes.AlreadyExists, fault.AgentExists)
}

// S0-11, S0-15: broken agents are listed with their error, removed ones are gone.
func TestList(t *testing.T) {
	h := openHome(t)
	if list, err := h.List(t.Context()); err != nil || list == nil || len(list) != 0 {
		t.Errorf("empty home: %#v, %v", list, err)
	}
	for _, id := range []string{"good", "bad", "gone", "other"} {
		create(t, h, id)
	}
	write(t, filepath.Join(h.AgentsDir(), "bad", "config.yaml"), "a: [b\n")
	write(t, filepath.Join(h.AgentsDir(), "other", "config.yaml"), "agent_id: x\n")
	write(t, filepath.Join(h.AgentsDir(), "stray-file"), "")
	if err := errors.Join(os.Mkdir(filepath.Join(h.AgentsDir(), "Upper"), 0o700), os.Mkdir(filepath.Join(h.AgentsDir(), "empty"), 0o700),
		os.Symlink("/etc", filepath.Join(h.AgentsDir(), "out")), os.RemoveAll(filepath.Join(h.AgentsDir(), "gone"))); err != nil {
		t.Fatal(err)
	}
	list, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		mark := e.Kind
		if f, ok := errors.AsType[*fault.Error](e.Err); ok {
			mark = f.Reason
		}
		got = append(got, e.ID+"="+mark)
	}
	want := []string{"Upper=INVALID_ARGUMENT", "bad=CONFIG_INVALID", "empty=INVALID_ARGUMENT", "good=user", "other=CONFIG_INVALID", "out=PERMISSION_DENIED"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if ids, err := h.IDs(); err != nil || !slices.Equal(ids, []string{"bad", "empty", "good", "other"}) {
		t.Errorf("ids %v, %v", ids, err)
	}
	_, err = h.Load("gone")
	if e := as(t, err, codes.NotFound, fault.AgentNotFound); fault.Line(e) != "Error: Agent 'gone' not found at "+filepath.Join(h.AgentsDir(), "gone")+" - run 'agent init gone' first" {
		t.Errorf("words: %s", fault.Line(e))
	}
	create(t, h, "gone")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestListSweepsInterruptedCreations(t *testing.T) {
	h := openHome(t)
	old := time.Now().Add(-time.Hour)
	dirs := map[string]string{}
	for _, name := range []string{"dead", "young", "held"} {
		dirs[name] = filepath.Join(h.AgentsDir(), "."+name+".tmp-abc")
		write(t, filepath.Join(dirs[name], "inbox", "events.db"), "x")
		if name != "young" {
			if err := os.Chtimes(dirs[name], old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := os.Open(dirs["held"])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if list, err := h.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	for name, want := range map[string]bool{"dead": false, "young": true, "held": true} {
		if _, err := os.Stat(dirs[name]); (err == nil) != want {
			t.Errorf("%s: there = %v, want %v", name, err == nil, want)
		}
	}
}

// S0-01: a directory that was moved to another home works there.
func TestMove(t *testing.T) {
	one, two := openHome(t), openHome(t)
	d := create(t, one, "a1")
	if err := os.Rename(d.Path, filepath.Join(two.AgentsDir(), "a1")); err != nil {
		t.Fatal(err)
	}
	a, err := two.Load("a1")
	if err != nil || a.Inbox() != filepath.Join(two.AgentsDir(), "a1", "inbox") {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := one.Load("a1"); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("the old place: %v", err)
	}
}

// S0-19: four system agents whose words name what there is.
func TestSystemAgents(t *testing.T) {
	h := openHome(t)
	var ids []string
	for _, p := range SystemAgents() {
		ids = append(ids, p.ID)
		d, err := h.Create(p.ID, Spec{Kind: p.Kind})
		if err != nil {
			t.Fatal(err)
		}
		identity, _, err := d.ReadFile("IDENTITY.md")
		if err != nil || !strings.HasPrefix(string(identity), "# "+p.ID+"\n") || !strings.Contains(string(identity), "bash_exec") {
			t.Errorf("%s: %v, %.60q", p.ID, err, identity)
		}
		usage, _, err := d.ReadFile("USAGE.md")
		if err != nil || !strings.Contains(string(usage), "For other agents") || strings.Contains(string(usage)+string(identity), "{{") {
			t.Errorf("%s: %v, %.60q", p.ID, err, usage)
		}
		a, err := h.Load(p.ID)
		if err != nil || a.Config.Kind != "system" {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
	if !slices.Equal(ids, []string{"admin", "warden", "maintainer", "evolver"}) {
		t.Errorf("system agents %v", ids)
	}
	if p := presetFor("bob"); p.Kind != "user" || !strings.Contains(string(p.Identity), "You are bob,") {
		t.Errorf("user text: %.80q", p.Identity)
	}
}

func TestIDsThatLookLikeYAML(t *testing.T) {
	h := openHome(t)
	for _, id := range []string{"123", "true", "null", "1e5", "0x1f", "no", "1_000", "2026-11-20"} {
		create(t, h, id)
		if a, err := h.Load(id); err != nil || a.Config.AgentID != id {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// The file system's refusals have a meaning; everything else stays as it is.
func TestFault(t *testing.T) {
	for errno, want := range map[error]string{
		syscall.ENOSPC: fault.DiskFull, syscall.EDQUOT: fault.DiskFull, syscall.EROFS: fault.ReadOnly,
		syscall.EACCES: fault.ReadOnly, syscall.EPERM: fault.ReadOnly, syscall.ENOENT: fault.InvalidArgument,
		syscall.ENAMETOOLONG: fault.InvalidArgument, syscall.ELOOP: fault.PermissionDenied,
	} {
		err := Fault(fmt.Errorf("write x: %w", &fs.PathError{Op: "write", Path: "/secret/place", Err: errno}))
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Reason != want || !errors.Is(err, errno) || e.Fix == "" || strings.Contains(e.What, "/secret") {
			t.Errorf("%v: %+v", errno, e)
		}
	}
	already := fault.New(codes.Aborted, fault.LeaseLost, "x", "y")
	for _, err := range []error{nil, context.Canceled, already, errors.New("else"), syscall.EIO} {
		if got := Fault(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestLoadLayers(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	write(t, h.DefaultsFile(), "defaults:\n  pai: {model: big}\n")
	a, err := h.Load("a1", layer.Override{Key: "run.timeout", Value: "9s", Origin: "flag --timeout"})
	if err != nil || a.Config.Pai.Model != "big" || a.Config.Run.Timeout != 9*time.Second {
		t.Fatalf("%+v, %v", a, err)
	}
	if v, err := a.Get("pai.model"); err != nil || v.Origin != "theclaw.yaml:2" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := a.Get("nope"); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("%v", err)
	}
	// S0-49, S0-50: read at each load, and an error shows the place.
	write(t, filepath.Join(d.Path, "config.yaml"), "agent_id: a1\nkind: weird\nfoo: 1\n")
	_, err = h.Load("a1")
	e := as(t, err, codes.FailedPrecondition, fault.ConfigInvalid)
	if e.Meta["file"] != "config.yaml" || e.Meta["line"] != "2" || e.Meta["column"] != "7" || !strings.Contains(e.Meta["source"], "\n              ^") || len(e.Fields) != 2 || !strings.HasSuffix(e.What, "(and 1 more)") {
		t.Errorf("%+v", e)
	}
	write(t, h.DefaultsFile(), "defaults: [\n")
	write(t, filepath.Join(d.Path, "config.yaml"), "agent_id: a1\n")
	// F8: the last good file stays in force where one was read.
	if a, err := h.Load("a1"); err != nil || a.Config.Pai.Model != "big" || !strings.Contains(fmt.Sprint(a.Problem), "theclaw.yaml:1") {
		t.Errorf("%+v, %v", a, err)
	}
	fresh, err := OpenHome(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if _, err := fresh.Load("a1"); err == nil || !strings.Contains(err.Error(), "theclaw.yaml:1") || !fault.Is(fresh.CheckDefaults(), fault.ConfigInvalid) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(os.Remove(h.DefaultsFile()), os.Remove(filepath.Join(d.Path, "config.yaml"))); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Load("a1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no config.yaml: %v", err)
	}
}

// S0-42: where an inbox may be.
func TestInboxPath(t *testing.T) {
	h := openHome(t)
	h.UserHome = filepath.Join(t.TempDir(), "user")
	d := create(t, h, "a1")
	create(t, h, "b2")
	outside := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(outside, "link")); err != nil {
		t.Fatal(err)
	}
	write(t, h.DefaultsFile(), "inbox_paths:\n  - "+outside+"\n  - ~/inboxes\n")
	for path, want := range map[string]string{
		"/srv/old/home/agents/a1/inbox":                filepath.Join(d.Path, "inbox"),
		"inbox2":                                       filepath.Join(d.Path, "inbox2"),
		filepath.Join(outside, "x"):                    filepath.Join(outside, "x"),
		"~/inboxes/a1":                                 filepath.Join(h.UserHome, "inboxes/a1"),
		"/srv/elsewhere":                               "",
		"../b2/inbox":                                  "",
		filepath.Join(h.Path(), "run"):                 "",
		filepath.Join(outside, "link"):                 "",
		filepath.Join(outside, "..", "y"):              "",
		"~/other":                                      "",
		filepath.Join(h.AgentsDir(), "b2", "inbox"):    "",
		filepath.Join(h.AgentsDir(), "a1", "../../.."): "",
	} {
		write(t, filepath.Join(d.Path, "config.yaml"), "agent_id: a1\ninbox:\n  path: "+path+"\n")
		a, err := h.Load("a1")
		switch {
		case want == "":
			if e := as(t, err, codes.FailedPrecondition, fault.ConfigInvalid); !strings.HasPrefix(e.What, "config.yaml:3:") {
				t.Errorf("%s: %s", path, e.What)
			}
		case err != nil:
			t.Errorf("%s: %v", path, err)
		default:
			if thread, err := a.Thread("inbox"); a.Inbox() != want || thread != want || err != nil {
				t.Errorf("%s: %s, %s, %v; want %s", path, a.Inbox(), thread, err, want)
			}
			if id, err := a.ThreadOf(want + "/"); id != "inbox" || err != nil {
				t.Errorf("%s: thread %q, %v", path, id, err)
			}
		}
	}
}
