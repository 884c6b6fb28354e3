//go:build proof

package upgrade_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestWrite makes the fixtures of a build: BUILD names it, DOOMED is its test binary of
// cmd/agentd, the only program with failpoints (tools/previous -test makes it).
func TestWrite(t *testing.T) {
	build, doomed := os.Getenv("BUILD"), os.Getenv("DOOMED")
	if build == "" {
		need.Inapplicable(t, "fixtures are made by `make fixtures`")
	}
	if _, err := os.Stat(filepath.Join("testdata", build)); err == nil {
		t.Fatalf("testdata/%s is there: fixtures are never made again", build)
	}
	db := pgtest.Start(t, "fsync = off")
	var size int64
	for i, label := range fault.Labels() {
		for _, store := range []string{"home", "dump"} {
			path := fixture(build, store, label)
			t.Run(store+"/"+label, func(t *testing.T) {
				r := record{Build: build, Store: store, Label: label, Mode: mode(label, i), Seconds: time.Now().Unix()}
				dsn := ""
				if store == "dump" {
					dsn = db.Database(t)
				}
				home := leave(t, doomed, dsn, &r)
				var dump []byte
				if dsn != "" {
					dump = dumped(t, db, dsn)
				}
				pack(t, path, r, home, dump)
			})
			if info, err := os.Stat(path); err == nil {
				size += info.Size()
			}
		}
	}
	drill.Line("fixtures build=%s labels=%d stores=2 bytes=%d", build, len(fault.Labels()), size)
}

// mode is how messages that come together are answered when the build is killed at a
// label: joining a turn has labels of its own, and a message that shall end dead must not
// be answered as a part of another one.
func mode(label string, i int) string {
	switch {
	case strings.HasPrefix(label, "steer"):
		return "steer"
	case strings.HasPrefix(label, "T9"):
		return "followup"
	}
	return []string{"followup", "steer", "collect"}[i%3]
}

// leave lets the build answer some messages, sends others, and has it killed at the label.
// It answers the home.
func leave(t *testing.T, doomed, dsn string, r *record) string {
	t.Helper()
	site, sink := world.NewSite(t, world.Program{
		Path: doomed,
		Env:  []string{"THECLAW_TEST_AGENTD=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
	}), world.NewSink(t)
	args := []string{"all", "--lease-ttl", "3s"}
	if dsn != "" {
		args = append(args, "--dsn", dsn)
	}
	p := site.Start(t, args...)
	site.Create(t, agent, sink.Config())
	for key, value := range map[string]string{
		"queue.mode": r.Mode, "deliver.max_age": "720h", "retry.max_age": "720h",
		"compaction.strategy": "truncate", "compaction.after_turns": "2", "compaction.agent_every": "1",
	} {
		site.Set(t, agent, key, value)
	}
	kinds := []string{"run", "fail", "refuse"}
	if r.Mode == "steer" {
		kinds[1] = "echo" // one that joined a turn which then dies is answered again
	}
	send := func(n, peer int) *message {
		r.Messages = append(r.Messages, message{Peer: fmt.Sprintf("p%d", peer), Kind: kinds[(n+peer)%3], Key: fmt.Sprintf("m%d-p%d", n, peer)})
		return &r.Messages[len(r.Messages)-1]
	}
	r.Messages = make([]message, 0, 12) // pointers into it stay
	for peer := range 3 {
		m := send(0, peer)
		var err error
		m.ID, err = site.Push(t.Context(), agent, world.Peer(m.Peer), m.text(), m.Key)
		check(t, err)
	}
	settle(t, site, r.Messages)
	p.Kill()

	p = site.StartWith(t, []string{"THECLAW_FAILPOINT=" + r.Label + ":1"}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var g sync.WaitGroup
	for peer := range 3 {
		ms := []*message{send(1, peer), send(2, peer), send(3, peer)}
		g.Go(func() {
			for _, m := range ms {
				id, err := site.Push(ctx, agent, world.Peer(m.Peer), m.text(), m.Key)
				if err != nil {
					return // the build is gone
				}
				m.ID = id
			}
		})
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		t.Fatalf("nothing killed it; its log:\n%s", p.Log())
	}
	cancel()
	g.Wait()
	if !p.Killed() {
		t.Fatalf("it ended; its log:\n%s", p.Log())
	}
	r.Sink, r.Arrivals, r.Ran = sink.URL, arrivals(sink), ran(t, site.Home)
	return site.Home
}

// pause is between two looks at what nothing reports.
const pause = 5 * time.Millisecond

// settle waits until messages have a fate and replies are delivered.
func settle(t testing.TB, site *world.Site, ms []message) {
	t.Helper()
	for _, m := range ms {
		site.Await(t, agent, m.ID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ; ; <-time.After(pause) {
		r, err := site.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: agent})
		check(t, err)
		if r.GetInbox().GetPending() == 0 && r.GetOutboundPending() == 0 {
			return
		}
	}
}

// meta are lines of a dump that only psql understands, or a newer server.
var meta = regexp.MustCompile(`(?m)^(\\(un)?restrict|SET transaction_timeout) .*\n`)

// dumped is a database as SQL. The server may still end a transaction of who was killed.
func dumped(t testing.TB, db *pgtest.Cluster, dsn string) []byte {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	defer conn.Close(t.Context())
	for n := 1; n > 0; <-time.After(pause) {
		check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&n))
	}
	cmd := exec.Command(db.Program("pg_dump"), "--no-owner", "--no-privileges", "--rows-per-insert=100", dsn)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, &stderr)
	}
	return meta.ReplaceAll(out, nil)
}
