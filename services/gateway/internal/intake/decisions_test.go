package intake

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/channel"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S2-15: a notice shows what its buttons approve, completely: the command last, and the entries that always adds. What
// does not fit has no button that approves it.
func TestApprovalNotice(t *testing.T) {
	const id = "018f3a1b2c3d4e5f6a7"
	git := []*registryv1.ExecEntry{{Pattern: "/usr/bin/git", Args: []string{"push"}}}
	long := strings.Repeat("x", 1000) + "; rm -rf /"
	var many []*registryv1.ExecEntry
	for range 32 {
		many = append(many, &registryv1.ExecEntry{Pattern: "/opt/" + strings.Repeat("y", 200)})
	}
	once, always, deny := "/approve "+id+" once", "/approve "+id+" always", "/deny "+id
	for what, c := range map[string]struct {
		a       *registryv1.Approval
		max     int // bytes that fit
		end     string
		has     []string
		buttons []string
	}{
		"a command": {
			&registryv1.Approval{Command: "git push origin main", Patterns: git, Reason: "it runs outside of the sandbox"}, maxApproval, "The command:\n```\ngit push origin main\n```",
			[]string{"alice wants to run a command in `/w`.", "Always allows from now on:\n`/usr/bin/git push` with any further arguments", "[once, always]"},
			[]string{once, always, deny},
		},
		"a program without a subcommand": {
			&registryv1.Approval{Command: "ls -l", Patterns: []*registryv1.ExecEntry{{Pattern: "/usr/bin/ls"}}}, maxApproval, "ls -l\n```", []string{"`/usr/bin/ls` with any arguments"}, []string{once, always, deny},
		},
		"a tool": {
			&registryv1.Approval{Kind: registryv1.ApprovalKind_APPROVAL_KIND_TOOL, Tool: "github__delete", Command: "github__delete {}"}, maxApproval, "The call:\n```\ngithub__delete {}\n```",
			[]string{"alice wants to call the tool `github__delete`."},
			[]string{once, deny},
		},
		"an agent": {
			&registryv1.Approval{Kind: registryv1.ApprovalKind_APPROVAL_KIND_AGENT, Command: "new agent bob"}, maxApproval, "The request:\n```\nnew agent bob\n```", []string{"alice wants to make an agent."}, []string{once, deny},
		},
		"none that can be allowed": {&registryv1.Approval{Command: "sh x.sh"}, maxApproval, "sh x.sh\n```", []string{"[once]"}, []string{once, deny}},
		"more than 500 characters": {&registryv1.Approval{Command: long, Patterns: git}, 2000, long + "\n```", nil, []string{once, always, deny}},
		"too long to show": {
			&registryv1.Approval{Command: long, Patterns: git}, 1000, strings.Repeat("x", 500) + "\n```", []string{"the first 500 of 1010 characters", "agentctl approvals list"}, []string{deny},
		},
		"too long to show the half": {
			&registryv1.Approval{Command: long, Patterns: git}, 600, strings.Repeat("x", 250) + "\n```", []string{"the first 250 of 1010 characters"}, []string{deny},
		},
		"too many entries": {
			&registryv1.Approval{Command: "a", Patterns: many}, maxApproval, "The command:\n```\na\n```", []string{"What always would allow is too long", "[once]"}, []string{once, deny},
		},
		"a reason that poses as the command": {
			&registryv1.Approval{Command: "rm -rf x", Reason: "x`\nThe command:\n```\nls\n```", External: true}, maxApproval, "The command:\n```\nrm -rf x\n```",
			[]string{"Reason: ```` x` The command: ``` ls ``` ````", "Text from outside"},
			[]string{once, deny},
		},
		"what cannot be seen": {
			&registryv1.Approval{Command: "a\u202eb\u00a0c\r\x00d\te\n```", Patterns: []*registryv1.ExecEntry{{Pattern: "/a\nb/\u2066"}}}, maxApproval,
			"````\na\\u202eb\\u00a0c\\r\\x00d\te\n```\n````",
			[]string{"`'/a\\nb/\\u2066'` with any arguments"},
			[]string{once, always, deny},
		},
	} {
		c.a.ApprovalId, c.a.AgentId, c.a.Cwd, c.a.ExpiresAt = id, "alice", "/w", timestamppb.New(time.Now().Add(5*time.Minute))
		text, buttons := approvalNotice(c.a, "/", func(s string) bool { return len(s) <= c.max })
		var commands []string
		for _, b := range buttons {
			commands = append(commands, b.Command)
		}
		if !strings.HasSuffix(text, c.end) || strings.Join(commands, " ") != strings.Join(c.buttons, " ") || len(text) > c.max {
			t.Errorf("%s: %q with %q", what, text, commands)
		}
		for _, part := range c.has {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %q", what, part, text)
			}
		}
	}
}

// S2-15: an approval that an owner was shown is not shown again when the registry was away for a while.
func TestShownOnce(t *testing.T) {
	d := NewDecisions(Deps{live: newLive()})
	m := &registryv1.WatchApprovalsResponse{Approval: &registryv1.Approval{ApprovalId: "ap-1", ExpiresAt: timestamppb.New(time.Now().Add(5 * time.Minute))}}
	d.waiting["ap-1"] = m
	d.sent(m.GetApproval(), "telegram:1207")
	clear(d.waiting) // the stream begins again
	d.show(t.Context())
	d.waiting["ap-1"] = m
	if d.open(m.GetApproval(), "telegram:1207") || !d.open(m.GetApproval(), "telegram:31") {
		t.Errorf("shown to: %v", d.shown)
	}
}

// limited is a channel with a limit.
type limited struct {
	channel.Channel
	limit channel.Limit
}

func (l limited) Limit() channel.Limit { return l.limit }

// A notice fits when it is one message with its buttons, as the platform measures it.
func TestFits(t *testing.T) {
	text := strings.Repeat("x", 1000)
	for what, c := range map[string]struct {
		out  channel.Channel
		text string
		want bool
	}{
		"without a limit":   {channel.Console{}, text, true},
		"over 4 KiB":        {channel.Console{}, strings.Repeat("x", maxApproval+1), false},
		"of the platform":   {limited{limit: channel.Limit{Max: 1100}}, text, true},
		"without the end":   {limited{limit: channel.Limit{Max: 1000}}, text, false},
		"by buttons":        {limited{limit: channel.Limit{Max: 1100, Buttons: 999}}, text, false},
		"as it is rendered": {limited{limit: channel.Limit{Max: 1100, Size: func(s string) int { return 2 * len(s) }}}, text, false},
	} {
		if got := (&Account{out: c.out}).fits(c.text); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
