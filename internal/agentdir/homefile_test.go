package agentdir

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
)

// S4-12: a change is in force at the next load; a broken file leaves the old settings in
// force and is named with its place; the same settings as JSON5 give the same values.
func TestHomeSettingsReload(t *testing.T) {
	h := openHome(t)
	create(t, h, "a1")
	model := func(want string) *Agent {
		t.Helper()
		a, err := h.Load("a1")
		if err != nil || a.Config.Pai.Model != want {
			t.Fatalf("%v, want the model %s", err, want)
		}
		return a
	}
	write(t, h.DefaultsFile(), "model: openai/one\nowners: ['telegram:1']\n")
	model("one")
	write(t, h.DefaultsFile(), "model: openai/two\nowners: ['telegram:2']\n")
	good := model("two")
	s, problem := h.HomeSettings()
	if problem != nil || len(s.Owners) != 1 || s.Owners[0] != "telegram:2" {
		t.Fatalf("%+v, %v", s, problem)
	}
	write(t, h.DefaultsFile(), "model: openai/three\nowners: [2]\n")
	if a := model("two"); a.Problem == nil || !strings.Contains(a.Problem.Error(), "theclaw.yaml:2:9: owners: entry 1 must be text") {
		t.Errorf("the problem is %v", a.Problem)
	}
	old, problem := h.HomeSettings()
	if !fault.Is(problem, fault.ConfigInvalid) || old.Version != s.Version {
		t.Errorf("%+v, %v", old, problem)
	}
	state, err := h.HomeState()
	if err != nil || state.Name != "theclaw.yaml" || !strings.Contains(string(state.Text), "two") || state.Problem == nil || state.LoadedAt.IsZero() {
		t.Errorf("%+v, %v", state, err)
	}

	write(t, h.JSON5File(), "{model: 'openai/two', owners: ['telegram:2']} // the same\n")
	if a := model("two"); a.Problem == nil || !strings.Contains(a.Problem.Error(), "has both theclaw.yaml and theclaw.json5") {
		t.Errorf("both files: %v", a.Problem)
	}
	if err := os.Remove(h.DefaultsFile()); err != nil {
		t.Fatal(err)
	}
	a := model("two")
	if a.Problem != nil || a.Files.Defaults.Name != "theclaw.json5" {
		t.Errorf("%v, %v", a.Problem, a.Files.Defaults.Name)
	}
	for i, v := range a.Values {
		if w := good.Values[i]; v.Key != w.Key || v.Value != w.Value {
			t.Errorf("%v in JSON5, %v in YAML", v, w)
		}
	}
	write(t, h.JSON5File(), "{model: 'openai/three',\n owners: ]}\n")
	if a := model("two"); a.Problem == nil || !strings.Contains(a.Problem.Error(), "theclaw.json5:2:10") {
		t.Errorf("the problem is %v", a.Problem)
	}
	// The settings of the last good files are those of JSON5, for a registry that has them.
	b, err := h.LastGood("a1", a.Files, errors.New("x"))
	if err != nil || b.Config.Pai.Model != "two" {
		t.Errorf("%v, %v", b, err)
	}
}

// The same stamp reads nothing again, and every change is seen.
func TestHomeSettingsAreKept(t *testing.T) {
	h := openHome(t)
	write(t, h.DefaultsFile(), "owners: ['telegram:1']\n")
	for _, text := range []string{"owners: ['telegram:2']\n", "owners: ['telegram:3']\n", "owners: [\n", "owners: ['telegram:4']\n"} {
		write(t, h.DefaultsFile(), text)
		for range 3 {
			s, problem := h.HomeSettings()
			if broken := strings.HasSuffix(text, "[\n"); broken != (problem != nil) || !broken && !strings.Contains(text, s.Owners[0]) {
				t.Errorf("%q: %v, %v", text, s.Owners, problem)
			}
		}
	}
}

// A file that is empty for a moment, while it is written in place, changes nothing; one that
// stays empty does.
func TestHomeSettingsOfAnEmptyFile(t *testing.T) {
	h := openHome(t)
	write(t, h.DefaultsFile(), "owners: ['telegram:1']\n")
	if _, problem := h.HomeSettings(); problem != nil {
		t.Fatal(problem)
	}
	write(t, h.DefaultsFile(), "")
	if s, problem := h.HomeSettings(); problem != nil || len(s.Owners) != 1 {
		t.Errorf("just emptied: %v, %v", s.Owners, problem)
	}
	for settled := false; !settled; _, settled = h.settingsStamp() {
		select {
		case <-t.Context().Done():
			t.Fatal("the file never settles")
		case <-time.After(FileTick):
		}
	}
	if s, problem := h.HomeSettings(); problem != nil || len(s.Owners) != 0 {
		t.Errorf("empty: %v, %v", s.Owners, problem)
	}
}

// S4-01: the marked entry, the first one, main, admin, the first id.
func TestDefaultAgent(t *testing.T) {
	list := func(ids ...string) (s layer.HomeSettings) {
		for _, id := range ids {
			name, marked := strings.CutSuffix(id, "!")
			s.Agents = append(s.Agents, layer.AgentEntry{ID: name, Default: marked})
		}
		return s
	}
	for _, c := range []struct {
		s    layer.HomeSettings
		ids  string
		want string
	}{
		{list("x", "y!"), "admin main x y", "y"},
		{list("x", "y"), "admin main x y", "x"},
		{list("gone!", "y"), "admin main x y", "y"},
		{list(), "admin alice main", "main"},
		{list(), "admin alice", "admin"},
		{list("gone"), "bob carl", "bob"},
		{list("x!"), "", ""},
	} {
		if got := DefaultAgent(c.s, strings.Fields(c.ids)); got != c.want {
			t.Errorf("%v of %s: %q, want %q", c.s.Agents, c.ids, got, c.want)
		}
	}
}

// One key of the file is set and removed. What is wrong changes nothing; a file that reads the home, and a
// theclaw.json5, are refused with what to do.
func TestSetValue(t *testing.T) {
	h := openHome(t)
	set := func(value, want string, path ...string) bool {
		t.Helper()
		now, existed, err := h.SetValue(path, value)
		text, readErr := os.ReadFile(h.DefaultsFile())
		if err != nil || readErr != nil || string(text) != want || now.Version != Version(text) {
			t.Errorf("%v %s: %v, %v, version %s\n%s", path, value, err, readErr, now.Version, text)
		}
		return existed
	}
	const text = "mcp:\n  servers:\n    x: {command: [x]}\n"
	if set("{command: [x]}", text, "mcp", "servers", "x") {
		t.Error("the key was there")
	}
	write(t, h.DefaultsFile(), "# mine\n"+text)
	set("5m", "# mine\n"+text+"run:\n  timeout: 5m\n", "run", "timeout")
	for _, dir := range []string{h.Path(), h.RunDir()} {
		_, _, err := h.SetValue([]string{"mcp", "servers", "y"}, "{command: [y], paths: ["+dir+"]}")
		if !fault.Is(err, fault.ConfigInvalid) || !strings.Contains(err.Error(), "holds the home") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if !set("", "# mine\nrun:\n  timeout: 5m\n", "mcp", "servers", "x") || !set("", "# mine\n", "run", "timeout") || set("", "# mine\n", "run", "timeout") {
		t.Error("what was there is wrong")
	}
	if err := os.Remove(h.DefaultsFile()); err != nil {
		t.Fatal(err)
	}
	write(t, h.JSON5File(), "{}")
	_, _, err := h.SetValue([]string{"mcp", "servers", "x"}, "{command: [x]}")
	if f := fault.From(err); f.Code != codes.FailedPrecondition || !strings.Contains(f.Fix, "set mcp.servers.x there yourself, to {command: [x]}") {
		t.Errorf("theclaw.json5: %v", err)
	}
	if _, err := os.Stat(h.DefaultsFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a theclaw.yaml next to it: %v", err)
	}
}
