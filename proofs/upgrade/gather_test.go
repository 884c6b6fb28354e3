//go:build proof

package upgrade_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestGather has agents in two databases, as an earlier build kept them. The present build
// refuses the two, and each of them alone, until what the refusal says was done with the
// programs of the earlier build (PREVIOUS); then it serves all agents from one.
func TestGather(t *testing.T) {
	previous := os.Getenv("PREVIOUS")
	if previous == "" {
		need.Missing(t, "the programs of an earlier build", "run make gather, which builds them")
	}
	db := pgtest.Start(t, "fsync = off")
	urls := []string{db.Database(t), db.Database(t)}
	present := program.Agentd(t)
	earlier := world.Program{Path: filepath.Join(previous, "agentd"), Env: present.Env}
	site := world.NewSite(t, present)
	check(t, os.MkdirAll(site.Home, 0o700))
	in := func(urls ...string) {
		t.Helper()
		check(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), fmt.Appendf(nil, "storage:\n  engine: postgres\n  dsns: [%s]\n", strings.Join(urls, ", ")), 0o600))
	}
	serve := func(p world.Program) *world.Process {
		t.Helper()
		p.Env = append(slices.Clone(p.Env), "THECLAW_HOME="+site.Home)
		run := p.Start(t, "all", "--lease-ttl", "3s")
		site.Serving(t, run, "registry", "runner", "deliverer")
		return run
	}
	end := func(p *world.Process) {
		t.Helper()
		p.Signal(syscall.SIGTERM)
		if code := p.Exit(); code != 0 {
			t.Errorf("exit %d: %s", code, p.Log())
		}
	}
	refused := func(what string, urls ...string) {
		t.Helper()
		in(urls...)
		p := site.Start(t, "all")
		if code := p.Exit(); code != 1 || !strings.Contains(p.Log(), what) || !strings.Contains(p.Log(), "--to-shard 1") {
			t.Errorf("exit %d, want 1 and %q: %s", code, what, p.Log())
		}
	}

	in(urls...)
	p := serve(earlier)
	sink := world.NewSink(t)
	ids := []string{"a", "b", "c", "d", "e", "gone"}
	say := func(when string) {
		t.Helper()
		for _, id := range ids {
			if turn := site.Say(t, id, world.Peer("bob"), "say: "+when); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Errorf("%s %s: %v", id, when, turn)
			}
		}
	}
	for _, id := range ids {
		site.Create(t, id, sink.Config())
	}
	say("before")
	kept := func() (n int) {
		for _, id := range ids {
			n += len(site.Events(t, id, "inbox", "")) + len(site.Events(t, id, "threads/peers/main-bob", ""))
		}
		return n
	}
	move := func(to int) {
		t.Helper()
		args := append([]string{"migrate-store"}, ids...)
		for _, url := range urls {
			args = append(args, "--dsn", url)
		}
		c := exec.CommandContext(t.Context(), filepath.Join(previous, "agentctl"), append(args, fmt.Sprint("--to-shard=", to), "--apply")...)
		c.Env = append(slices.Clone(present.Env), "THECLAW_HOME="+site.Home)
		out, err := c.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Fatal(err)
		}
	}
	stop := func() {
		t.Helper()
		for _, id := range ids {
			_, err := site.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: id})
			check(t, err)
		}
	}
	// A list in which agents were moved and one was removed where it had gone to.
	stop()
	move(2)
	for end := time.Now().Add(time.Minute); ; <-time.After(pause) { // the deliverer may have it for a moment
		_, err := site.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "gone"})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	ids = ids[:5]
	end(p)

	refused("2 databases are given", urls...)
	for i, url := range urls {
		refused(fmt.Sprintf("number %d of 2", i+1), url)
	}
	const truncate = "TRUNCATE shard, moved"
	if !strings.Contains(reference.Gather, truncate) {
		t.Errorf("the refusal says %q", reference.Gather)
	}
	in(urls...)
	p = serve(earlier)
	was := kept()
	move(1)
	end(p)
	refused("number 1 of 2", urls[0])
	c, err := pgx.Connect(t.Context(), urls[0])
	check(t, err)
	_, err = c.Exec(t.Context(), truncate)
	check(t, err)
	check(t, c.Close(t.Context()))

	in(urls[0])
	p = serve(present)
	list, err := site.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	check(t, err)
	if is := kept(); len(list.GetAgents()) != len(ids) || is != was {
		t.Errorf("%d agents with %d events, want %d with %d", len(list.GetAgents()), is, len(ids), was)
	}
	for _, id := range ids {
		_, err := site.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: id})
		check(t, err)
	}
	say("after")
	if is := kept(); is != 2*was {
		t.Errorf("%d events after as many messages again, were %d", is, was)
	}
	end(p)
	found, stats, err := invariant.Check(t.Context(), layout.At(site.Home), invariant.Options{DSN: urls[0], Live: true})
	check(t, err)
	for _, f := range found {
		t.Errorf("%s", f)
	}
	drill.Line("gather previous=%s agents=%d events=%d after=%d violations=%d", filepath.Base(previous), len(ids), was, stats.Events, len(found))
}
