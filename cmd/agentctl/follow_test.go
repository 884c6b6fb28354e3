//go:build proof

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/grpc"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/internal/command"
	deliverer "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// services starts `agentd all` and returns when it answers; stop ends it in order
// and is called at the end of the test too.
func services(t *testing.T, home string, env ...string) (stop func()) {
	t.Helper()
	s := &server{cmd: exec.Command(filepath.Join(built(t), "agentd"), "all")}
	s.cmd.Env = append([]string{"THECLAW_HOME=" + home, "HOME=" + home, "PATH=" + os.Getenv("PATH")}, env...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := answering(ctx, home); err != nil {
		t.Fatal(err)
	}
	return s.stop
}

// server is `agentd all` of one test.
type server struct{ cmd *exec.Cmd }

func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// answering returns when all three services answer a call.
func answering(ctx context.Context, home string) error {
	e := command.New(nil, nil, nil, func(name string) string { return map[string]string{"THECLAW_HOME": home}[name] }, "test")
	defer e.Close()
	wait := grpc.WaitForReady(true)
	if _, err := e.Agents().ListAgents(ctx, &registry.ListAgentsRequest{}, wait); err != nil {
		return err
	}
	if _, err := e.RunnerService().GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{}, wait); err != nil {
		return err
	}
	_, err := e.DelivererService().GetDelivererInfo(ctx, &deliverer.GetDelivererInfoRequest{}, wait)
	return err
}

// owner is a client of the services of a home.
func owner(t *testing.T, home string) *command.Env {
	e := command.New(nil, nil, nil, func(name string) string { return map[string]string{"THECLAW_HOME": home}[name] }, "test")
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestFollow: --follow prints what comes, goes on after a restart of the
// services with nothing lost or twice, in both forms, and Ctrl-C is its normal end.
func TestFollow(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	stop := services(t, home)
	e := owner(t, home)
	if _, err := e.Agents().CreateAgent(t.Context(), &registry.CreateAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	push := func(text string) {
		t.Helper()
		_, err := e.Threads().PushEvents(t.Context(), &registry.PushEventsRequest{
			Thread: &registry.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
			Events: []*registry.NewEvent{{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: text}},
		}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
	}
	push("before")
	next, ends := follow(t, home, "--json")
	row, rowsEnd := follow(t, home)
	row("ID TIME SOURCE TYPE CONTENT") // once
	both := func(text string) {
		t.Helper()
		next(`"content":"` + text + `"`)
		row(text)
	}
	both("before")
	push("while it looks")
	both("while it looks")
	stop()
	services(t, home)
	push("after a restart")
	both("after a restart")
	ends()
	rowsEnd()
}

// follow follows the events of a1: next reads a line and looks for words in it, and ends
// is Ctrl-C, which is no failure.
func follow(t *testing.T, home string, flags ...string) (next func(want string), ends func()) {
	t.Helper()
	c := exec.Command(filepath.Join(built(t), "agentctl"), append([]string{"events", "a1", "--follow"}, flags...)...)
	c.Env = []string{"THECLAW_HOME=" + home}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	lines := bufio.NewReader(out)
	return func(want string) {
			t.Helper()
			line, err := lines.ReadString('\n')
			if err != nil || !strings.Contains(strings.Join(strings.Fields(line), " "), want) {
				t.Fatalf("line %q, %v; want %q", line, err, want)
			}
		}, func() {
			t.Helper()
			if err := c.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("Ctrl-C is no failure here: %v", err)
			}
		}
}

// TestChatShowsARunThatIsOver attends a message whose turn ended before its stream was asked
// for: thoughts and tools come all the same, and before the reply.
func TestChatShowsARunThatIsOver(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home, newLoopback(t).env()...)
	agentOf(t, home)
	e := owner(t, home)
	ctx := t.Context()
	id, _, err := message.Say(ctx, e, "a1", message.Console, "", message.NewKey(), "use a tool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := message.Turn(ctx, e, "a1", id, false, nil); err != nil {
		t.Fatal(err)
	}
	var kinds []feed.What
	s := &feed.Source{Env: e, Agent: "a1", Send: func(m tea.Msg) {
		if p, ok := m.(feed.Pieces); ok {
			for _, i := range p.Items {
				kinds = append(kinds, i.What)
			}
		}
	}}
	f, ok := s.Attend(ctx, id)().(feed.Finished)
	if !ok || f.Err != nil || f.Reply != "The tool has said it." {
		t.Fatalf("finished: %+v", f)
	}
	for _, want := range []feed.What{feed.Thought, feed.Began, feed.Ended, feed.Spoke} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the run showed %v, without %v", kinds, want)
		}
	}
}
