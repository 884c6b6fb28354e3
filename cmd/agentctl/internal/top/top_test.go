package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Rates are over the last minute, or over what was answered of it.
func TestCount(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	turn := func(ago time.Duration, fate registry.Fate, tries int32) *registry.Turn {
		return &registry.Turn{FinishedAt: timestamppb.New(now.Add(-ago)), Fate: fate, ErrorAttempts: tries, Usage: &registry.Usage{Input: 10, Output: 2}}
	}
	var r row
	r.count([]*registry.Turn{
		{ErrorAttempts: 2},
		turn(time.Second, registry.Fate_FATE_REPLIED, 1), turn(30*time.Second, registry.Fate_FATE_DEAD, 0),
		turn(2*time.Minute, registry.Fate_FATE_REPLIED, 5),
	}, now)
	if r.Turns != 2 || r.Errors != 4 || r.InputTokens != 20 || r.OutputTokens != 4 || fmt.Sprintf("%.3f", r.TurnsPerS) != "0.033" {
		t.Errorf("%+v", r)
	}
	many := make([]*registry.Turn, newest)
	for i := range many {
		many[i] = turn(time.Duration(i)*50*time.Millisecond, registry.Fate_FATE_REPLIED, 0)
	}
	r = row{}
	if r.count(many, now); r.TurnsPerS < 20 || r.TurnsPerS > 20.2 {
		t.Errorf("%d turns in 10 s are %.2f a second", newest, r.TurnsPerS)
	}
}

// What is drawn fits the terminal, with the busiest agents first.
func TestView(t *testing.T) {
	m := &model{env: command.New(nil, nil, nil, func(string) string { return "" }, "test"), width: 60, height: 10, seen: true}
	for i := range 100 {
		m.look.Agents = append(m.look.Agents, row{AgentID: fmt.Sprintf("agent%d", i), State: "started", Problem: "\x1b[2Jbad"})
	}
	lines := strings.Split(m.View().Content, "\n")
	if len(lines) != 10 || !strings.Contains(strings.Join(lines, "\n"), "agent0 ") || strings.Contains(m.View().Content, "\x1b[2J") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, l := range lines {
		if lipgloss.Width(l) > 60 {
			t.Errorf("%d columns: %s", lipgloss.Width(l), l)
		}
	}
	for _, title := range []string{"AGENT", "STATE", "LAG", "WAITS", "PROCS", "DEAD"} {
		if !strings.Contains(strings.Join(lines, "\n"), " "+title) && !strings.Contains(strings.Join(lines, "\n"), "\n"+title) {
			t.Errorf("no column %s in 60:\n%s", title, strings.Join(lines, "\n"))
		}
	}
}
