package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/testing/world"
)

// person runs command lines in the home of a world.
func person(w *world.World) func(args ...string) outcome {
	return func(args ...string) outcome { return typing(w, "", args...) }
}

// typing runs a command line with something on standard input.
func typing(w *world.World, in string, args ...string) outcome {
	var out, errs bytes.Buffer
	args = append([]string{"--runner", "unix://" + filepath.Join(w.Home, "run/runner0.sock")}, args...)
	if args[2] == cobra.ShellCompRequestCmd { // comes first
		args = append(args[2:3:3], append(args[:2:2], args[3:]...)...)
	}
	code := Main(args, strings.NewReader(in), &out, &errs, func(name string) string {
		return map[string]string{"THECLAW_HOME": w.Home, "PATH": os.Getenv("PATH")}[name]
	})
	return outcome{code, out.String(), errs.String()}
}

// What differs between two calls of one command.
var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?`)

// comparable is a value without its numbers.
func comparable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = comparable(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, comparable(e))
		}
		return out
	case string:
		if len(v) > 24 && strings.Trim(v, "0123456789abcdef") == "" { // the serial of a certificate
			return "HASH"
		}
		return number.ReplaceAllString(v, "N")
	case float64, int64, uint64, int:
		return "N"
	}
	return v
}

// twoAgents is a home with two agents: a1 has a dead letter and a reply, whose run is key.
func twoAgents(t *testing.T) (w *world.World, key string) {
	t.Helper()
	w = world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	w.Create(t, "a2", "outbound: []")
	w.Say(t, "a1", world.Peer("bob"), "fail: auth")
	return w, w.Say(t, "a1", world.Peer("bob"), "say: hi").GetKey()
}

// TestOutputs: every list and object is printed in every form. JSON and YAML hold the
// same, a name is a line for each, and wide has at least the columns of the table.
func TestOutputs(t *testing.T) {
	w, key := twoAgents(t)
	do := person(w)
	if o := do("certs", "init"); o.code != 0 {
		t.Fatal(o.err)
	}
	w.Say(t, "a1", source.Console, "say: hi")
	if o := do("bindings", "add", "a1", "--channel", "discord", "--guild", "81"); o.code != 0 {
		t.Fatal(o.err)
	}
	n := 0
	for _, line := range []string{
		"sessions list a1", "sessions show " + aKey, "sessions history " + aKey, "sessions patch " + aKey + " --title x", "sessions reset " + aKey, "sessions archive " + aKey,
		"pair list", "bindings list", "bindings test --channel discord --peer channel:7 --guild 81",
		"list", "status", "status a1", "threads a1", "turns a1", "explain a1 2", "errors list", "dlq list", "config effective a1", "config get a1 kind",
		"config set a1 retry.max_attempts 4", "config explain", "config explain sandbox", "lease list", "providers list", "usage", "usage --by peer", "memory show a1", "context show a1 threads/peers/main-bob",
		"log show a1", "certs show", "certs issue runner-2", "top --once", "version", "prune", "file get a1 IDENTITY.md", "run wait a1 " + key, "init a3", "start a1", "start a1 a2", "stop a2", "bootstrap",
		"erase a1 --peer bob", "fsck", "cmds list", "cmds info cat", "send a1 hello", "migrate --all",
	} {
		args := strings.Fields(line)
		results := map[string]string{}
		for _, form := range command.Outputs {
			if line == "init a3" { // is there only once
				args[1] = "b" + form
			}
			o := do(append(slices.Clone(args), "-o", form)...)
			if o.code != 0 {
				t.Errorf("agentctl %s -o %s: exit %d, %s%s", line, form, o.code, o.out, o.err)
			}
			results[form] = o.out
			n++
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(results["json"]), &fromJSON); err != nil {
			t.Errorf("agentctl %s -o json: %v\n%s", line, err, results["json"])
		}
		if err := yaml.Unmarshal([]byte(results["yaml"]), &fromYAML); err != nil {
			t.Errorf("agentctl %s -o yaml: %v\n%s", line, err, results["yaml"])
		}
		a, b := comparable(fromJSON), comparable(fromYAML)
		if line == "init a3" || line == "send a1 hello" {
			a, b = keys(a), keys(b)
		}
		if !reflect.DeepEqual(a, b) && line != "lease list" {
			t.Errorf("agentctl %s: JSON and YAML differ\n%s\n%s", line, results["json"], results["yaml"])
		}
		names := strings.Split(strings.TrimSuffix(results["name"], "\n"), "\n")
		if list, is := fromJSON.([]any); is && len(names) != max(1, len(list)) {
			t.Errorf("agentctl %s -o name: %q of %d", line, names, len(list))
		}
		if title := strings.Fields(results["table"]); len(title) > 0 && regexp.MustCompile(`^[A-Z]{2}`).MatchString(title[0]) {
			if wide := strings.Fields(results["wide"]); len(wide) == 0 || wide[0] != title[0] {
				t.Errorf("agentctl %s -o wide:\n%s", line, results["wide"])
			}
		}
	}
	t.Logf("%d command lines", n)
	for line, want := range map[string]string{
		"list -o name": "a1\na2\n", "status a1 -o name": "a1\n", "threads a1 -o name": "inbox\n", "dlq list -o name": "a1 t:1\n", "run wait a1 " + key + " -o name": key + "\n",
	} {
		if o := do(strings.Fields(line)...); !strings.HasPrefix(o.out, want) {
			t.Errorf("agentctl %s: %q, want %q", line, o.out, want)
		}
	}
	failsWith(t, 2, "", "chat", "a1", "-o", "yaml")
	failsWith(t, 2, "", "list", "-o", "nosuch")
	if o := call(t, "", "list", "--json", "-o", "yaml"); o.code != 2 {
		t.Errorf("two forms at a time: exit %d", o.code)
	}
	if o := call(t, "", "list", "-o", "json"); o.code != 1 || !strings.HasPrefix(o.out, `{"error":`) || o.err != "" {
		t.Errorf("an error with -o json: %+v", o)
	}
}

// keys are the names of an object.
func keys(v any) (out []string) {
	m, _ := v.(map[string]any)
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// candidates are what a shell offers for the last word of a command line.
func candidates(o outcome) (out []string) {
	for l := range strings.Lines(o.out) {
		if l = strings.TrimSuffix(l, "\n"); !strings.HasPrefix(l, ":") {
			l, _, _ = strings.Cut(l, "\t")
			out = append(out, l)
		}
	}
	return out
}

// TestCompletion: what stands at a place of a command line is offered there, and without
// services nothing is, silently and at once.
func TestCompletion(t *testing.T) {
	w, key := twoAgents(t)
	do := person(w)
	w.Say(t, "a2", source.Console, "say: hi")
	stuck := t.TempDir()
	if err := os.MkdirAll(filepath.Join(stuck, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(stuck, "run", "registry.sock")) // takes calls and answers none
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ line, typed, want string }{
		{"status", "", "a1 a2"},
		{"status", "a2", "a2"},
		{"status a1", "", ""},
		{"stop a1", "", "a2"},
		{"chat", "", "a1 a2"},
		{"init", "", ""},
		{"threads", "a", "a1 a2"},
		{"events a1", "", "inbox threads/peers/main-bob"},
		{"context show a1", "threads/", "threads/peers/main-bob"},
		{"memory show a1", "in", "inbox"},
		{"explain a1", "", "2 1"},
		{"cancel a1", "2", "2"},
		{"run wait a1", key[:40], key},
		{"sessions show", "agent:a2:", "agent:a2:console:cli:dm:cli"},
		{"chat a2 --session", "agent:a2:con", "agent:a2:console:cli:dm:cli"},
		{"sessions list a1 --kind", "gr", "group"},
		{"bindings remove", "", ""},
		{"dlq retry a1", "", "t:1"},
		{"dlq drop a1 t:1", "", ""},
		{"approvals approve", "", ""},
		{"questions answer", "", ""},
		{"config get a1", "retry.max_at", "retry.max_attempts"},
		{"config set a1 sandbox.mode", "re", "required reduced"},
		{"config explain", "retry.max_at", "retry.max_attempts"},
		{"providers test", "off", "offline"},
		{"init a3 --provider", "off", "offline"},
		{"errors list --agent", "", "a1 a2"},
		{"backup x.tar --agent", "a2", "a2"},
		{"turns a1 --fate", "dea", "dead"},
		{"usage --by", "m", "model"},
		{"init a3 --kind", "", "user system"},
		{"list -o", "", "table wide yaml json name"},
		{"log level --service", "ru", "runner"},
		{"log level", "de", "debug"},
		{"profile", "c", "cpu"},
		{"completion", "z", "zsh"},
		{"", "sta", "start status"},
	} {
		args := append([]string{cobra.ShellCompRequestCmd}, append(strings.Fields(c.line), c.typed)...)
		o := do(args...)
		if got := strings.Join(candidates(o), " "); o.code != 0 || got != c.want {
			t.Errorf("agentctl %s %s<TAB>: exit %d, %q, want %q\n%s", c.line, c.typed, o.code, got, c.want, o.err)
		}
		homes := map[string]string{"away": filepath.Join(t.TempDir(), "h")}
		if strings.HasPrefix(c.line, "explain") {
			homes["stuck"] = stuck
		}
		for name, home := range homes {
			var out, errs bytes.Buffer
			code := Main(args, strings.NewReader(""), &out, &errs, func(string) string { return home })
			if strings.Contains(out.String(), "a1") || strings.Contains(errs.String(), "rror") || code != 0 {
				t.Errorf("%s: agentctl %s %s<TAB>: exit %d, %s%s", name, c.line, c.typed, code, &out, &errs)
			}
		}
	}
	for shell, names := range map[string]string{ // S3-71: for the other names too
		"bash": "\ncomplete -o default -F __start_agentctl ac agentclaw\n", "zsh": "#compdef agentctl ac agentclaw\ncompdef _agentctl agentctl ac agentclaw\n",
		"fish": "\ncomplete -c ac -w agentctl\ncomplete -c agentclaw -w agentctl\n", "powershell": "",
	} {
		if o := call(t, "", "completion", shell); o.code != 0 || !strings.Contains(o.out, cobra.ShellCompRequestCmd) || !strings.Contains(o.out, names) {
			t.Errorf("completion %s: exit %d, %d bytes", shell, o.code, len(o.out))
		}
	}
}

// TestManual: each command has a page with its examples.
func TestManual(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	o := call(t, "", "man", dir, "-o", "name")
	if o.code != 0 {
		t.Fatal(o.err)
	}
	n := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		n++
		b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		page := strings.NewReplacer(`\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\-`, "-", `\&`, "", `\e`, `\`).Replace(string(b))
		if !strings.Contains(page, ".SH EXAMPLES\n.nf\n"+c.Example) || c.Example == "" || !strings.Contains(page, c.Short) || !strings.Contains(page, "-o, --output") {
			t.Errorf("%s: the page is\n%s", c.CommandPath(), page)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(tree())
	if pages := strings.Fields(o.out); len(pages) != n || n < 70 {
		t.Errorf("%d pages of %d commands", len(pages), n)
	}
}

// TestOverview: without a command the ten of every day are shown, and where the rest is.
func TestOverview(t *testing.T) {
	o := call(t, "")
	if n := strings.Count(o.err, "\n  "); o.code != 2 || o.out != "" || n != 10 || !strings.Contains(o.err, "'agentctl help' lists all commands") {
		t.Errorf("exit %d, %d commands\n%s%s", o.code, n, o.out, o.err)
	}
	help := call(t, "", "help")
	for _, c := range tree().Commands() {
		if !c.Hidden && c.Name() != "help" && !strings.Contains(help.out, "\n  "+c.Name()+" ") {
			t.Errorf("'agentctl help' does not show %s", c.Name())
		}
		if !c.Hidden && c.GroupID == "" && !slices.Contains([]string{"completion", "help", "version"}, c.Name()) {
			t.Errorf("%s is in no group of the help", c.Name())
		}
	}
	for _, flag := range []string{"--version", "-v"} { // S3-76
		if o := call(t, "", flag); o.code != 0 || o.out != version+"\n" {
			t.Errorf("%s: %+v", flag, o)
		}
	}
	if o := call(t, "", "-h"); o.code != 0 || o.out != call(t, "", "--help").out {
		t.Errorf("-h: %+v", o)
	}
}
