package pai_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
)

// at makes a desk with another place.
func at(t *testing.T, box pai.Sandbox, set func(*pai.Place)) (*pai.Driver, pai.Place) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "pai")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := pai.Place{AgentID: "a1", ThreadID: "threads/main", SandboxMode: "off", Workdir: filepath.Join(dir, "workdir"), Sessions: filepath.Join(dir, "sessions")}
	set(&p)
	return pai.New(pai.Config{Name: "pai/fake", Provider: "fake", Command: program, Sandbox: func() (pai.Sandbox, error) { return box, nil }}, p), p
}

func aside(p *pai.Place) { p.Aside = true }

const turns = help + " --max-turns <n>"

// A call aside has no tools, as recorded of --max-turns 1, and leaves nothing.
func TestAside(t *testing.T) {
	s := &spy{replay: replay{help: turns, stdout: recorded(t, "33-*.stdout"), stderr: recorded(t, "33-*.stderr")}}
	d, p := at(t, s, aside)
	resp, err := d.Generate(t.Context(), say("digest this"), nil)
	if err != nil || resp.Text != "no tools offered" {
		t.Fatalf("%q, %v", resp.Text, err)
	}
	args := s.asked[len(s.asked)-1]
	if !slices.Equal(args[len(args)-2:], []string{"--max-turns", "1"}) || s.files["--input-file"] != "digest this" {
		t.Errorf("called with %q", args)
	}
	if left, err := os.ReadDir(p.Sessions); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A version that offers its bash all the same is ended before it can have asked the
// model, and one that knows no bound of rounds is not started.
func TestAsideNeverHasTools(t *testing.T) {
	for name, c := range map[string]struct{ help, stderr, say string }{
		"offers":       {turns, recorded(t, "01-*.stderr"), "offers its tools"},
		"calls":        {turns, recorded(t, "33-*.stderr") + `{"type":"tool_call","data":{"name":"bash_exec","arguments":{}}}` + "\n", "offers its tools"},
		"does not say": {turns, `{"type":"start","data":{}}` + "\n", "offers its tools"},
		"no bound":     {help, recorded(t, "33-*.stderr"), "--max-turns"},
	} {
		t.Run(name, func(t *testing.T) {
			box := &replay{help: c.help, stdout: "text", stderr: c.stderr}
			d, _ := at(t, box, aside)
			told := false
			_, err := d.Generate(t.Context(), say("hi"), func(d model.Delta) { told = told || d.Tool != nil })
			e := model.AsError(err)
			if e == nil || e.Class != model.Config || !strings.Contains(e.Message, c.say) || told {
				t.Errorf("%v", err)
			}
			if name == "no bound" && len(box.asked) != 1 {
				t.Errorf("started %q", box.asked)
			}
		})
	}
}

// What only a text that broke off looks like is asked again, where that is possible
// and nothing has run: so the recorded one is (10-drop).
func TestBrokenOff(t *testing.T) {
	whole := recorded(t, "01-*.stderr")
	for name, c := range map[string]struct {
		text, stderr string
		spare, cut   bool
	}{
		"recorded":         {recorded(t, "10-*.stdout"), recorded(t, "10-*.stderr"), true, true},
		"no other try":     {recorded(t, "10-*.stdout"), recorded(t, "10-*.stderr"), false, false},
		"in a word":        {"echo: hel", whole, true, false},
		"newline":          {"echo:\n", whole, true, false},
		"in a block":       {"Do this:\n```sh\nrm -r", whole, true, true},
		"in a list":        {"1. a\n   ```\nx\n", whole, true, true},
		"whole block":      {"Do this:\n```sh\nls\n```", whole, true, false},
		"fence in a line":  {"Use ``` for code.", whole, true, false},
		"after tools":      {"done: ", recorded(t, "03-*.stderr"), true, false},
		"at its own limit": {"and then ", strings.Replace(whole, `"stop"`, `"length"`, 1), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := at(t, &replay{help: help, stdout: c.text, stderr: c.stderr}, func(p *pai.Place) { p.Spare = c.spare })
			resp, err := d.Generate(t.Context(), say("hi"), nil)
			e := model.AsError(err)
			if c.cut != (e != nil && e.Class == model.CutStream) || !c.cut && !strings.HasPrefix(resp.Text, c.text) {
				t.Errorf("%q, %v", resp.Text, err)
			}
		})
	}
}
