//go:build proof

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/internal/testing/world"
)

// leaves are all commands that do something themselves.
func leaves(c *cobra.Command) []*cobra.Command {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	var all []*cobra.Command
	if c.Name() == "agent" { // it runs a turn, and has a command below it
		all = append(all, c)
	}
	for _, sub := range c.Commands() {
		all = append(all, leaves(sub)...)
	}
	return all
}

// good are arguments with which each command gets as far as its first call. The
// keys are checked against the command tree: a new command needs a row.
var good = map[string][]string{
	"agent": {"--message=hi", "--agent=a1"}, "agent rm": {"--yes", "a1"}, "rm": {"--yes", "a1"}, "cancel": {"a1", "1"}, "run abort": {"a1", "u:1:f"}, "run stream": {"a1", "u:1:f"}, "run wait": {"a1", "u:1:f"}, "top": {},
	"approvals approve": {"x"}, "approvals deny": {"x"}, "approvals list": {}, "approvals watch": {}, "approvals policy show": {"a1"}, "approvals policy import": {"/dev/null"}, "approvals policy set": {"--ask=always", "a1"}, "audit show": {}, "audit verify": {}, "backup": {"x.tar"}, "bootstrap": {}, "certs init": {}, "certs issue": {"runner"}, "certs rotate": {}, "certs show": {},
	"bindings add": {"--channel=telegram", "a1"}, "bindings list": {}, "bindings remove": {"1"}, "bindings test": {"--channel=telegram"},
	"channels add": {"webhook", "x"}, "channels list": {}, "channels remove": {"shop"}, "channels restart": {"shop"}, "channels sign": {"shop"}, "channels status": {}, "channels test": {"--to=1207", "shop"},
	"pair approve": {"shop:7"}, "pair block": {"shop:7"}, "pair deny": {"shop:7"}, "pair list": {}, "pair revoke": {"shop:7"},
	"chat": {"a1"}, "completion": {"bash"}, "config effective": {"a1"}, "config explain": {"run.timeout"}, "config get": {"a1", "kind"}, "config status": {}, "config import": {"/dev/null"},
	"config set": {"a1", "kind", "user"}, "config unset": {"a1", "kind"}, "context show": {"a1", "threads/main"}, "dlq drop": {"a1", "t:1"}, "dlq list": {},
	"cmds find": {"nothing of the kind"}, "cmds info": {"x"}, "cmds list": {},
	"dlq retry": {"a1", "d:threads/main:3"}, "doctor": {}, "drill": {}, "erase": {"--peer", "bob", "a1"}, "export": {"--peer", "bob", "a1", "-"}, "errors list": {}, "events": {"a1"}, "explain": {"a1", "1"}, "fsck": {},
	"file get": {"a1", "USAGE.md"}, "file put": {"a1", "USAGE.md"}, "gateway run": {}, "help": {"send"}, "init": {"a1"}, "lease list": {}, "list": {}, "man": {filepath.Join(os.TempDir(), "agentctl-man")}, "memory compact": {"a1"}, "memory edit": {"a1"}, "memory show": {"a1"}, "restore": {"x.tar"},
	"migrate": {"a1"}, "migrate-store": {"--to=database", "--dsn=postgres:///none?host=/no/such", "a1"}, "send": {"a1", "hello"}, "start": {"a1"}, "status": {}, "stop": {"a1"},
	"service install": {}, "service logs": {}, "service start": {}, "service status": {}, "service stop": {}, "service uninstall": {}, "setup": {"--yes"}, "support bundle": {"x.tar.gz"},
	"sessions archive": {aKey}, "sessions history": {aKey}, "sessions list": {"a1"}, "sessions patch": {"--title=x", aKey}, "sessions reset": {aKey}, "sessions show": {aKey},
	"mcp add": {"--url=http://127.0.0.1:9/", "x"}, "mcp approve": {"--yes", "files"}, "mcp deny": {"files"}, "mcp diff": {"files"}, "mcp list": {}, "mcp remove": {"files"}, "mcp restart": {"files"}, "mcp test": {"files"},
	"hooks list": {}, "hooks test": {"guard"},
	"tools explain": {"a1", "bash_exec"}, "tools list": {"a1"}, "sandbox explain": {"a1"},
	"thread":  {},
	"threads": {"a1"}, "token rotate": {}, "turns": {"a1"}, "up": {}, "version": {},
	"log level": {}, "log show": {"a1"}, "profile": {"heap", "x.pprof"}, "prune": {}, "ready": {},
	"questions answer": {"x", "1"}, "questions list": {}, "questions watch": {},
	"providers list": {}, "providers test": {"openai"}, "usage": {},
}

// offline commands need no service.
var offline = map[string]bool{"certs init": true, "completion": true, "config explain": true, "help": true, "man": true, "version": true}

// works are the commands that need no service but a home, a file or a program.
var works = map[string]bool{
	"audit show": true, "audit verify": true, "backup": true, "certs issue": true, "certs rotate": true, "certs show": true, "restore": true, "drill": true, "migrate": true, "migrate-store": true,
	"service install": true, "service logs": true, "service start": true, "service status": true, "service stop": true, "service uninstall": true, "setup": true,
	"token rotate": true,
	"cmds find":    true, "cmds info": true, "cmds list": true,
}

// TestExitCodes is the table over all commands (S0-136): 2 for a wrong command
// line, 1 when it fails, and always the two forms of an error, with and without
// --json (S0-134, S0-135, S0-137, S0-138).
func TestExitCodes(t *testing.T) {
	for _, c := range leaves(tree()) {
		name := strings.Join(words(c), " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is spent on trying again
			args, ok := good[name]
			if !ok {
				t.Fatalf("no row for %q in the table", name)
			}
			with := func(more ...string) []string { return append(words(c), more...) }
			failsWith(t, 2, "", with(append(args, "--no-such-flag")...)...)
			if name != "help" && !strings.Contains(c.Use, "...") {
				most := strings.Count(c.Use, " ") + len(flagged(args))
				failsWith(t, 2, "", with(append(args, strings.Fields("w x y z")[:most-len(args)+1]...)...)...)
			}
			if strings.Contains(c.Use, " ID") {
				failsWith(t, 2, "", words(c)...)
			}
			if strings.Contains(c.Use+" ", " ID") || strings.Contains(c.Use, "[ID") {
				for _, id := range []string{"../x", "", "A/B", "é"} {
					failsWith(t, 2, "", with(append([]string{id}, args[min(1, len(args)):]...)...)...)
				}
			}
			switch {
			case offline[name]:
				if o := call(t, "", with(args...)...); o.code != 0 || o.err != "" || o.out == "" {
					t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.out, o.err)
				}
			case name == "doctor", name == "ready", name == "fsck", name == "up", name == "gateway run", name == "support bundle", name == "config status": // they say more than that; see their own tests
			case name == "thread":
				failsWith(t, 2, "", with(args...)...)
			case works[name]:
				failsWith(t, 1, "", with(args...)...)
			default:
				said := failsWith(t, 1, "hello\n", with(args...)...)
				if !strings.Contains(said, "does not answer at unix://") || !strings.Contains(said, "start it with 'agentd all'") {
					t.Errorf("no hint that a service is missing (S0-137): %s", said)
				}
			}
		})
	}
	if n := len(leaves(tree())); n != len(good) {
		t.Errorf("%d commands, %d rows", n, len(good))
	}
}

// flagged are the words of a command line that are flags and their values.
func flagged(args []string) []string {
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		return args
	}
	return nil
}

// TestUnknownAgent: an agent that is not there is the same failure in every command that
// takes one: exit code 1, its name, and a way on.
func TestUnknownAgent(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	do := person(w)
	n := 0
	for _, c := range leaves(tree()) {
		name := strings.Join(words(c), " ")
		if !strings.Contains(c.Use, " ID") && !strings.Contains(c.Use, "[ID") || name == "init" || name == "migrate-store" { // the last needs PostgreSQL
			continue
		}
		args, named := slices.Clone(good[name]), false
		for i, a := range args {
			if strings.HasSuffix(a, "a1") {
				args[i], named = strings.TrimSuffix(a, "a1")+"nobody", true
			}
		}
		if !named {
			args = append(args, "nobody")
		}
		n++
		if o := do(append(words(c), args...)...); o.code != 1 || !strings.Contains(o.err, "'nobody' not found") || !strings.Contains(o.err, " - ") {
			t.Errorf("agentctl %s %q: exit %d, %s%s", name, args, o.code, o.out, o.err)
		}
	}
	if n < 25 {
		t.Errorf("%d commands take an agent", n)
	}
}
