package shell_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
)

// S2-15: which commands run, which are refused with class read, and which ask, by the policy that a
// turn is given. What runs by the lists is the line that was checked.
func TestPolicy(t *testing.T) {
	allow := []*registrypb.ExecEntry{{Pattern: "/usr/bin/mkdir"}}
	for _, c := range []struct {
		exec    *registrypb.ExecPolicy
		command string
		runs    string // empty: it does not
		class   toolset.Class
		asks    bool
	}{
		{nil, "mkdir a | x", "mkdir a | x", toolset.Effect, false},
		{&registrypb.ExecPolicy{Security: "full", Ask: "off"}, "mkdir a > x", "mkdir a > x", toolset.Effect, false},
		{&registrypb.ExecPolicy{Security: "allowlist", Ask: "off", Allowlist: allow}, "mkdir a", "/usr/bin/mkdir a", toolset.Effect, false},
		{&registrypb.ExecPolicy{Security: "allowlist", Ask: "off", Allowlist: allow, SafeBins: []string{"wc"}}, "mkdir a|wc -l", "/usr/bin/mkdir a | /usr/bin/wc -l", toolset.Effect, false},
		{&registrypb.ExecPolicy{Security: "allowlist", Ask: "off", Allowlist: allow}, "mkdir a > x", "", toolset.Read, false},
		{&registrypb.ExecPolicy{Security: "deny", Ask: "always", Allowlist: allow}, "mkdir a", "", toolset.Read, false},
		{&registrypb.ExecPolicy{Security: "allowlist", Ask: "on-miss", Allowlist: allow}, "mkdir a", "/usr/bin/mkdir a", toolset.Effect, false},
		{&registrypb.ExecPolicy{Security: "allowlist", Ask: "on-miss", Allowlist: allow}, "rmdir a", "", toolset.Effect, true},
		{&registrypb.ExecPolicy{Security: "full", Ask: "always"}, "mkdir a", "", toolset.Effect, true},
		{&registrypb.ExecPolicy{}, "mkdir a", "", toolset.Read, false},
	} {
		place := at(t)
		place.Config.Exec = c.exec
		args, err := json.Marshal(map[string]string{"command": c.command, "cwd": "sub"})
		if err != nil {
			t.Fatal(err)
		}
		tool := &shell.Tool{}
		call := toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: args, Place: place}
		if class, asks := tool.Class(call), tool.Asks(call); class != c.class || asks != c.asks {
			t.Errorf("%v, %s: class %v, asks %t", c.exec, c.command, class, asks)
		}
		b := &box{}
		result := run(t.Context(), t, b, place, string(args)) // without anybody to ask, which is a no
		switch {
		case c.runs == "" && (b.got != nil || !strings.Contains(result, "error")):
			t.Errorf("%v, %s: ran %v, %s", c.exec, c.command, b.got, result)
		case c.runs != "" && (b.got == nil || b.got.Shell != "cd -- 'sub' || exit 1\n"+c.runs):
			t.Errorf("%v, %s: ran %v, %s", c.exec, c.command, b.got, result)
		}
	}
}

// What let a command run goes with its result, each entry once, for the last use of it.
func TestUsed(t *testing.T) {
	place := at(t)
	place.Config.Exec = &registrypb.ExecPolicy{Security: "allowlist", Ask: "off", SafeBins: []string{"wc"}, Allowlist: []*registrypb.ExecEntry{{Pattern: "/usr/bin/env"}, {Pattern: "/usr/bin/mkdir"}}}
	tool := &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return &box{}, nil }}
	for command, want := range map[string]int{"mkdir a; mkdir b | wc": 1, "wc": 0} {
		args, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		use := tool.Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: args, Place: place}).ExecUse
		if len(use.GetEntries()) != want || want > 0 && (use.GetEntries()[0].GetPattern() != "/usr/bin/mkdir" || use.GetCommand() != command) {
			t.Errorf("%s: %v", command, use)
		}
	}
}

// A call that asked when its intent was journaled asks although the settings would let it run now, or have put it into
// the sandbox: that it has begun is known by the use of its approval alone.
func TestAsksStays(t *testing.T) {
	for _, exec := range []*registrypb.ExecPolicy{{Security: "full", Ask: "off"}, nil} {
		place := at(t)
		place.Config.Exec = exec
		b := &box{}
		tool := &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return b, nil }}
		r := tool.Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: json.RawMessage(`{"command":"ls"}`), Place: place, Asks: true})
		if !r.IsError || b.got != nil {
			t.Errorf("%v: it ran %v: %+v", exec, b.got, r)
		}
	}
}

// What was checked is what runs: the program that the kernel has started is the one whose path the
// list allows, whatever the directory, a function or PATH would put there.
func TestWhatWasCheckedRuns(t *testing.T) {
	box, err := sandbox.New(t.Context(), sandbox.Options{Mode: sandbox.Off, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	place := at(t)
	place.Config.SandboxMode = "off"
	dir := place.Config.GetWorkdir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "readlink"), []byte("#!/bin/sh\necho another program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	place.Config.Exec = &registrypb.ExecPolicy{Security: "allowlist", Ask: "off", Allowlist: []*registrypb.ExecEntry{{Pattern: "/usr/bin/readlink"}}}
	say := func(command string) string {
		args, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		return run(t.Context(), t, box, place, string(args))
	}
	real, err := filepath.EvalSymlinks("/usr/bin/readlink")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"readlink /proc/self/exe", "'readlink' /proc/self/exe", "/usr/bin/readlink /proc/self/exe"} {
		if got := say(command); !strings.Contains(got, real+`\n`) {
			t.Errorf("%s: %s", command, got)
		}
	}
	for _, command := range []string{
		"./readlink /proc/self/exe", "PATH=. readlink /proc/self/exe", "readlink() { echo x; }; readlink /proc/self/exe", "alias readlink=./readlink\nreadlink x",
		"export PATH=.; readlink x", "hash -p ./readlink readlink; readlink x", "cd / && readlink x",
	} {
		if got := say(command); !strings.Contains(got, "nothing was run") {
			t.Errorf("%s: %s", command, got)
		}
	}
}
