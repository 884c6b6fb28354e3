package agentdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// S0-23, S0-24, S0-28..S0-30: the files that can be read and written by name.
func TestFiles(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	for _, name := range []string{"IDENTITY.md", "USAGE.md", "memory/agent.md", "memory/user-tg-bob%2Fx.md", "memory/thread-threads%2Fpeers%2Fcli-cli.md", "memory/past/thread-threads%2Fmain.7.md"} {
		version, err := d.WriteFile(name, []byte("héllo\n"), "")
		if err != nil || version != Version([]byte("héllo\n")) {
			t.Fatalf("%s: %s, %v", name, version, err)
		}
		data, got, err := d.ReadFile(name)
		if err != nil || string(data) != "héllo\n" || got != version {
			t.Errorf("%s: %q, %s, %v", name, data, got, err)
		}
	}
	checkModes(t, h.Path())
	_, _, err := d.ReadFile("memory/none.md")
	as(t, err, codes.NotFound, fault.InvalidArgument)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestFileNamesAreRefused(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	for _, name := range []string{
		"", ".", "../b/IDENTITY.md", "/etc/passwd", "identity.md", "run.lock", "inbox/events.db", "memory", "memory/", "memory/x",
		"memory/../config.yaml.md", "memory/../../x.md", "memory/.hidden.md", "memory/a/b.md", "memory/past/", "memory/past/.md", "memory/past/a/b.md", "memory/past/../x.md", "past/a.md", "memory/a\x00.md", "memory/ä.md",
		"memory/" + strings.Repeat("x", 300) + ".md", "workdir/x.md", "config.yaml.md", "theclaw.yaml",
	} {
		_, _, err := d.ReadFile(name)
		as(t, err, codes.InvalidArgument, fault.InvalidArgument)
		_, err = d.WriteFile(name, nil, "")
		as(t, err, codes.InvalidArgument, fault.InvalidArgument)
	}
}

func TestWriteFileRefusesContent(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	before, version, err := d.ReadFile("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, content, reason string }{
		{"IDENTITY.md", "\xff", fault.InvalidArgument},
		{"IDENTITY.md", strings.Repeat("x", MaxFileSize+1), fault.InvalidArgument},
		{"config.yaml", "agent_id: a1\nfoo: 1\n", fault.ConfigInvalid},
		{"config.yaml", "agent_id: other\n", fault.ConfigInvalid},
		{"config.yaml", "", fault.ConfigInvalid},
		{"config.yaml", "agent_id: a1\ninbox: {path: /etc}\n", fault.ConfigInvalid},
	} {
		_, err := d.WriteFile(c.name, []byte(c.content), "")
		as(t, err, codes.InvalidArgument, c.reason)
	}
	if after, v, err := d.ReadFile("config.yaml"); err != nil || v != version || !bytes.Equal(after, before) {
		t.Errorf("config.yaml was changed: %v", err)
	}
	if _, err := d.WriteFile("IDENTITY.md", bytes.Repeat([]byte("x"), MaxFileSize), ""); err != nil {
		t.Errorf("the largest file: %v", err)
	}
	checkLeftovers(t, d)
}

func checkLeftovers(t *testing.T, d Dir) {
	t.Helper()
	for _, pattern := range []string{".*", "memory/.*"} {
		if found, err := filepath.Glob(filepath.Join(d.Path, pattern)); err != nil || len(found) != 0 {
			t.Errorf("left behind: %v, %v", found, err)
		}
	}
}

// Compare and set: nobody's change is lost.
func TestWriteFileExpects(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	v1, err := d.WriteFile("memory/agent.md", []byte("1"), NoFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, expect := range []string{NoFile, "nonsense", Version([]byte("2"))} {
		_, err := d.WriteFile("memory/agent.md", []byte("x"), expect)
		as(t, err, codes.Aborted, fault.InvalidArgument)
		if !errors.Is(err, ErrChanged) {
			t.Errorf("cause of %v", err)
		}
	}
	if _, err := d.WriteFile("memory/agent.md", []byte("2"), v1); err != nil {
		t.Error(err)
	}
	// Of many who read the same version one gets through.
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = d.WriteFile("memory/agent.md", fmt.Append(nil, "w", i), Version([]byte("2"))) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, ErrChanged) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers won", won)
	}
}

func TestFilesOfTheWrongSort(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	identity := filepath.Join(d.Path, "IDENTITY.md")
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "canary")
	if err := errors.Join(os.Remove(identity), os.Symlink(secret, identity)); err != nil {
		t.Fatal(err)
	}
	_, _, err := d.ReadFile("IDENTITY.md")
	as(t, err, codes.PermissionDenied, fault.PermissionDenied)
	// Writing replaces the link, not what it points to.
	if _, err := d.WriteFile("IDENTITY.md", []byte("mine"), ""); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "canary" {
		t.Errorf("%q, %v", data, err)
	}
	if err := errors.Join(os.Remove(identity), syscall.Mkfifo(identity, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.ReadFile("IDENTITY.md"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if err := errors.Join(os.RemoveAll(d.Memory()), os.Symlink(t.TempDir(), d.Memory())); err != nil {
		t.Fatal(err)
	}
	_, err = d.WriteFile("memory/agent.md", []byte("x"), "")
	as(t, err, codes.PermissionDenied, fault.PermissionDenied)
	write(t, filepath.Join(d.Path, "USAGE.md"), strings.Repeat("x", MaxFileSize+1))
	if _, _, err := d.ReadFile("USAGE.md"); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a large file: %v", err)
	}
}

// A write that is killed before its rename leaves the old bytes, and Clean the rest.
func TestInterruptedWrite(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	if _, err := d.WriteFile("memory/past/thread-x.7.md", []byte("past"), NoFile); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteFile("memory/agent.md", []byte("old"), ""); err != nil {
		t.Fatal(err)
	}
	fault.SetPoint(func(label string) {
		if label != "safefile:before-rename" {
			return
		}
		if data, _, err := d.ReadFile("memory/agent.md"); err != nil || string(data) != "old" {
			t.Errorf("seen in the middle: %q, %v", data, err)
		}
	})
	defer fault.SetPoint(nil)
	if _, err := d.WriteFile("memory/agent.md", []byte("new"), ""); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{".IDENTITY.md123", "memory/.agent.md456", "memory/past/.thread-x.7.md8", ".config.yaml9", "memory/mine.md", ".keep"} {
		write(t, filepath.Join(d.Path, name), "x")
		if err := os.Chtimes(filepath.Join(d.Path, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(d.Path, ".USAGE.md7"), "young")
	if err := d.Clean(time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{".IDENTITY.md123": false, "memory/.agent.md456": false, "memory/past/.thread-x.7.md8": false, "memory/past/thread-x.7.md": true, ".config.yaml9": false, "memory/mine.md": true, ".keep": true, ".USAGE.md7": true} {
		if _, err := os.Lstat(filepath.Join(d.Path, name)); (err == nil) != want {
			t.Errorf("%s: there = %v", name, err == nil)
		}
	}
}

// A write that cannot be finished gives its fault, keeps the old file and leaves nothing
// (a full disk is in TestFault and TestCreateFails).
func TestCannotWrite(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	if os.Geteuid() != 0 { // root may write everywhere
		if err := os.Chmod(d.Path, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := d.WriteFile("IDENTITY.md", []byte("x"), "")
		as(t, err, codes.FailedPrecondition, fault.ReadOnly)
		if err := os.Chmod(d.Path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A directory in the place of the file: the rename fails after the data was written.
	identity := filepath.Join(d.Path, "IDENTITY.md")
	if err := errors.Join(os.Remove(identity), os.Mkdir(identity, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteFile("IDENTITY.md", []byte("x"), ""); err == nil {
		t.Error("a directory was replaced")
	}
	checkLeftovers(t, d)
}

// S0-25: one key changes, the comments stay, an invalid value changes nothing.
func TestSetConfig(t *testing.T) {
	h := openHome(t)
	d := create(t, h, "a1")
	before, _, err := d.ReadFile("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	version, err := d.SetConfig("pai.model", "gpt-5")
	if err != nil {
		t.Fatal(err)
	}
	after, v, err := d.ReadFile("config.yaml")
	if err != nil || v != version || strings.Replace(string(after), "pai:\n  model: gpt-5\n", "", 1) != string(before) {
		t.Errorf("%v\n%s", err, after)
	}
	a, err := h.Load("a1")
	if err != nil || a.Config.Pai.Model != "gpt-5" {
		t.Errorf("%v", err)
	}
	for key, value := range map[string]string{"kind": "weird", "nope": "1", "agent_id": "b", "inbox.path": "/etc"} {
		_, err := d.SetConfig(key, value)
		as(t, err, codes.InvalidArgument, fault.ConfigInvalid)
	}
	if _, got, err := d.ReadFile("config.yaml"); err != nil || got != version {
		t.Errorf("changed by a refused value: %v", err)
	}
}
