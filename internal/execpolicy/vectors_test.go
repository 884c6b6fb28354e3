package execpolicy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/testing/vectors"
)

// different are the recorded vectors that are decided differently here, and why.
var different = map[int]string{
	22: "deny refuses, whatever ask is",
}

// S2-15: the recorded decisions.
func TestVectors(t *testing.T) {
	vectors.Compare(t, "exec-approvals", different, answer)
}

// answer is what a vector gives here.
func answer(t *testing.T, v vectors.Vector) any {
	t.Helper()
	decode := func(into any) {
		if err := json.Unmarshal(v.Input, into); err != nil {
			t.Fatal(err)
		}
	}
	switch v.Fn {
	case "evaluateShellAllowlist":
		var in struct {
			Command   string
			Allowlist []string
		}
		decode(&in)
		p := execpolicy.Policy{SafeBins: execpolicy.DefaultSafeBins}
		for _, e := range in.Allowlist {
			p.Allow = append(p.Allow, execpolicy.Entry{Pattern: e})
		}
		h := host()
		line, err := execpolicy.Analyze(in.Command, h)
		matches, satisfied := []string{}, err == nil
		for _, c := range line.Commands {
			i, ok := p.Match(c, h)
			satisfied = satisfied && ok
			if i >= 0 {
				matches = append(matches, in.Allowlist[i])
			}
			if !ok { // the recorded one stops here
				break
			}
		}
		return map[string]any{"analysisOk": err == nil, "allowlistSatisfied": satisfied, "matches": matches}
	case "requiresExecApproval":
		var in struct {
			Ask, Security      string
			AllowlistSatisfied bool
			AnalysisOk         bool
		}
		decode(&in)
		p := execpolicy.Policy{Security: execpolicy.Security(in.Security), Ask: execpolicy.Ask(in.Ask)}
		if in.AllowlistSatisfied && in.AnalysisOk {
			p.Allow = []execpolicy.Entry{{Pattern: "/**"}}
		}
		return p.Decide("ls", host(), false).Action == execpolicy.Question
	case "minSecurity":
		var in []execpolicy.Security
		decode(&in)
		return execpolicy.StricterSecurity(in[0], in[1])
	case "maxAsk":
		var in []execpolicy.Ask
		decode(&in)
		return execpolicy.StricterAsk(in[0], in[1])
	case "resolveExecApprovalsFromFile(main)":
		d, err := execpolicy.Parse(v.Input)
		if err != nil {
			t.Fatal(err)
		}
		rules := func(agent string) any {
			r := d.Rules(agent)
			return map[string]any{"security": r.Security, "ask": r.Ask, "askFallback": r.AskFallback, "autoAllowSkills": r.AutoAllowSkills != nil && *r.AutoAllowSkills}
		}
		list := []string{}
		for _, e := range d.Agents["main"].Allowlist {
			list = append(list, e.Pattern)
		}
		return map[string]any{"defaults": rules("\x00"), "agent": rules("main"), "allowlist": list}
	}
	return nil
}

// host is one with the usual programs, and some files in the current directory.
func host() execpolicy.Host {
	programs := strings.Fields("ls git rm tee cat env sh bash python3 jq grep cut sort uniq head tail tr wc find xargs make echo rg node curl touch date id awk sed tar ssh sudo prlimit setpriv choom fakeroot bwrap ssh-agent dbus-run-session ip valgrind i386 newgrp sg m4 systemd-inhibit")
	files := []string{"/home/me/notes", "/tmp/git", "/home/me/git", "/home/me/run.sh", "/opt/tool/bin/git"}
	return execpolicy.Host{
		Path: "/usr/bin:/bin", Dir: "/home/me", Home: "/home/me",
		Stat: func(path string) (there, executable bool) {
			name, ok := strings.CutPrefix(path, "/usr/bin/")
			if ok && slices.Contains(programs, name) {
				return true, true
			}
			there = slices.Contains(files, path)
			return there, there && path != "/home/me/notes"
		},
	}
}
