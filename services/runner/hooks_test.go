package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
)

// S1-32, S1-41: the program of a hook gets the event on its input, in the sandbox, where the directory of hooks is at
// /hooks and cannot be changed. What it does wrong is a failure, and its command comes from the settings alone.
func TestRunHook(t *testing.T) {
	w := newWorld(t)
	home := w.home.Path()
	files := map[string]string{
		"hooks/echo.sh": `cat`, "hooks/no.sh": `echo " not this
one " >&2; exit 2`,
		"hooks/bad.sh": `echo first >&2; echo last >&2; exit 7`, "hooks/hang.sh": `sleep 60 & exec sleep 60`,
		"hooks/flood.sh": `head -c 400000 /dev/zero | tr "\0" x`, "hooks/noise.sh": `printf '\377'`, "hooks/two.sh": `echo home`, "agents/a1/hooks/two.sh": `echo agent`,
		"hooks/where.sh": `ls /hooks/echo.sh; echo x 2>/dev/null >/hooks/echo.sh || echo kept; echo "$KEY $THECLAW_HOOKS"; ls -A; test -e ` + home + `/theclaw.yaml || echo hidden; cat`,
	}
	if _, err := w.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	var hooks, own strings.Builder
	for name, script := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(name, "hooks/"); ok {
			timeout := "30s"
			if name == "hang.sh" {
				timeout = "1s"
			}
			hooks.WriteString("- {name: " + strings.TrimSuffix(name, ".sh") + ", events: [message_sending], command: [" + name + "], timeout: " + timeout + ", env: {KEY: \"env:GUARD\"}}\n")
		}
	}
	hooks.WriteString("- {name: gone, events: [command], command: [gone.sh]}\n- {name: python, events: [command], command: [/bin/sh, /hooks/two.sh]}\n")
	own.WriteString("hooks:\n- {name: own, events: [command], command: [two.sh]}\n- {name: fallback, events: [command], command: [echo.sh]}\n")
	config := filepath.Join(home, "agents", "a1", "config.yaml")
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(home, "theclaw.yaml"): "hooks:\n" + hooks.String(), config: string(data) + own.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := runner.New(runner.Config{Home: home}, runner.Deps{Registry: w.wire, Holder: "test", Getenv: func(name string) string {
		return map[string]string{"GUARD": "hunter2hunter2"}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it closes its sandbox at the end of Run
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	run := func(hook, event string) (*runnerpb.RunHookResponse, error) {
		return s.RunHook(t.Context(), &runnerpb.RunHookRequest{AgentId: "a1", Hook: hook, Event: event, Input: `{"event":"x"}`})
	}
	for hook, want := range map[string]*runnerpb.RunHookResponse{
		"echo":  {Output: `{"event":"x"}`},
		"no":    {Refused: true, Reason: "not this\none"},
		"bad":   {Failure: "exit 7: last"},
		"flood": {Failure: "its output is longer than 262144 bytes"},
		"noise": {Failure: "its output is not valid UTF-8"},
		"two":   {Output: "home"},
		"where": {Output: "/hooks/echo.sh\nkept\nhunter2hunter2 /hooks\nhidden\n{\"event\":\"x\"}"},
	} {
		got, err := run(hook, "message_sending")
		if err != nil || got.GetOutput() != want.GetOutput() || got.GetRefused() != want.GetRefused() || got.GetReason() != want.GetReason() || got.GetFailure() != want.GetFailure() {
			t.Errorf("%s: %v, %v", hook, got, err)
		}
	}
	for hook, want := range map[string]string{"own": "agent", "fallback": `{"event":"x"}`, "python": "home"} {
		if got, err := run(hook, "command:new"); err != nil || got.GetOutput() != want {
			t.Errorf("%s: %v, %v", hook, got, err)
		}
	}
	if got, err := run("hang", "message_sending"); err != nil || !strings.HasPrefix(got.GetFailure(), "it was killed after 1") {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := run("gone", "command"); err != nil || !strings.HasPrefix(got.GetFailure(), "there is no file gone.sh in ") {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range [][2]string{{"none", "command"}, {"own", "message_sending"}} {
		if _, err := run(c[0], c[1]); !fault.Is(err, fault.HookInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := s.RunHook(t.Context(), &runnerpb.RunHookRequest{Hook: "own", Event: "command"}); !fault.Is(err, fault.HookInvalid) {
		t.Errorf("a hook of an agent without the agent: %v", err)
	}
}
