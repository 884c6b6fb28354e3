package world

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// save takes a backup over the wire.
func save(t *testing.T, w Client, req *registryv1.BackupAgentsRequest) []byte {
	t.Helper()
	in, err := w.Agents.BackupAgents(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return b.Bytes()
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(m.GetChunk()) > 1<<20 {
			t.Errorf("a chunk of %d bytes", len(m.GetChunk()))
		}
		b.Write(m.GetChunk())
	}
}

// granted are the lease tokens that a backup ends with.
func granted(t *testing.T, b []byte) map[string]uint64 {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != "manifest.json" {
			continue
		}
		var m struct{ Tokens map[string]uint64 }
		if err := json.NewDecoder(r).Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m.Tokens
	}
}

// restore sends it in pieces of a size of its own.
func restore(ctx context.Context, w *World, tar []byte, first *registryv1.RestoreAgentsRequest) ([]*registryv1.RestoredAgent, error) {
	out, err := w.Agents.RestoreAgents(ctx)
	if err != nil {
		return nil, err
	}
	m := first
	for len(tar) > 0 {
		n := min(len(tar), 99_999)
		m.Chunk, tar = tar[:n], tar[n:]
		if err := out.Send(m); err != nil {
			break // the answer says why
		}
		m = &registryv1.RestoreAgentsRequest{}
	}
	r, err := out.CloseAndRecv()
	return r.GetAgents(), err
}

// sound fails the test for every broken promise in the databases.
func sound(t *testing.T, home string, o invariant.Options) {
	t.Helper()
	o.Live = true
	found, _, err := invariant.Check(t.Context(), layout.At(home), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("%s", f)
	}
}

// P1, RELIABILITY 5: a backup that is taken under load is one whole. Restored into
// another home every message of it is accounted, new ones are answered, no id is
// given out again and tokens rise. It is the same from a database, and into one: there
// another registry is asked for it than those who work were given.
func TestBackupUnderLoad(t *testing.T) {
	c := pgtest.Shared(t)
	for name, kinds := range map[string][2]bool{"home to home": {}, "database to home": {true, false}, "home to database": {false, true}, "database to database": {true, true}} {
		t.Run(name, func(t *testing.T) {
			var at [2]Options
			for i, shared := range kinds {
				if shared {
					at[i].DSN, at[i].Registries = c.Database(t), 2
				}
			}
			backUpUnderLoad(t, at[0], at[1])
		})
	}
}

func backUpUnderLoad(t *testing.T, from, to Options) {
	w, sink := Start(t, from), NewSink(t)
	agents := []string{"a1", "a2"}
	for _, id := range agents {
		w.Create(t, id, sink.Config())
		if _, err := w.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: id, Name: "memory/agent.md", Content: []byte("remember " + id)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	begun := make(chan struct{}, 100_000)
	for i, id := range []string{"a1", "a1", "a1", "a2"} {
		w.Say(t, id, Peer(fmt.Sprintf("p%d", i)), "say: first") // so that there is its thread
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := w.Push(ctx, id, Peer(fmt.Sprintf("p%d", i)), fmt.Sprintf("say: %d", n), ""); err == nil {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 100 {
		<-begun
	}
	saved := save(t, w.At[len(w.At)-1], &registryv1.BackupAgentsRequest{})
	stop()
	load.Wait()
	tokens := granted(t, saved)
	if s, err := archive.Inspect(t.Context(), bytes.NewReader(saved)); err != nil || len(s.Agents) != 2 || s.Databases < 6 {
		t.Fatalf("%+v, %v", s, err)
	}
	w.Stop() // the machine is gone

	v := Start(t, to)
	done, err := restore(t.Context(), v, saved, &registryv1.RestoreAgentsRequest{})
	if err != nil || len(done) != 2 {
		t.Fatalf("%v, %v", done, err)
	}
	for _, r := range done {
		t.Logf("restored %v", r)
		id := r.GetAgentId()
		inbox := v.Events(t, id, "inbox", "")
		if len(inbox) == 0 || r.GetLastInboxId() < inbox[len(inbox)-1].GetId() || r.GetThreads() < 2 {
			t.Errorf("%v: %d events in the inbox", r, len(inbox))
		}
		for _, e := range inbox {
			if turn := v.Await(t, id, e.GetId()); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Errorf("event %d of %s: %v", e.GetId(), id, turn)
			}
		}
		fresh, err := v.Push(t.Context(), id, Peer("new"), "say: and now", "")
		if err != nil || fresh <= r.GetLastInboxId() {
			t.Errorf("%s: a new message got id %d after %d (%v)", id, fresh, r.GetLastInboxId(), err)
		}
		if turn := v.Await(t, id, fresh); v.Reply(t, turn) != "and now" {
			t.Errorf("%s: %v", id, turn)
		}
		if f, err := v.Agents.ReadAgentFile(t.Context(), &registryv1.ReadAgentFileRequest{AgentId: id, Name: "memory/agent.md"}); err != nil || string(f.GetContent()) != "remember "+id {
			t.Errorf("%s: memory %v, %v", id, f, err)
		}
	}
	leases, err := v.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.GetLeases() {
		if was := tokens[l.GetResource()]; was == 0 || l.GetToken() <= was {
			t.Errorf("%v: the token was %d before", l, was)
		}
	}
	if _, err := restore(t.Context(), v, saved, &registryv1.RestoreAgentsRequest{AgentIds: agents[:1]}); !fault.Is(fault.From(err), fault.AgentExists) {
		t.Errorf("restored over one that is there: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(v.Home, "*", "run", "backup-*")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	sound(t, v.Home, invariant.Options{DSN: to.DSN})
}

// A restore that fails leaves nothing; one that replaces keeps the old agent and
// goes on above its ids and tokens.
func TestRestoreWholeOrNot(t *testing.T) {
	w := Start(t, Options{})
	w.Create(t, "a1", "outbound: []")
	for range 3 {
		w.Say(t, "a1", Peer("p"), "say: x")
	}
	saved := save(t, w.Client, &registryv1.BackupAgentsRequest{AgentIds: []string{"a1"}})
	names := func() []string {
		t.Helper()
		dirs, err := filepath.Glob(filepath.Join(w.Home, "agents", "*"))
		hidden, _ := filepath.Glob(filepath.Join(w.Home, "agents", ".*"))
		left, _ := filepath.Glob(filepath.Join(w.Home, "run", "backup-*"))
		if err != nil {
			t.Fatal(err)
		}
		return append(append(dirs, hidden...), left...)
	}
	flipped := bytes.Clone(saved)
	flipped[len(flipped)/2] ^= 1
	for what, c := range map[string]struct {
		tar    []byte
		req    *registryv1.RestoreAgentsRequest
		reason string
	}{
		"it exists":      {saved, &registryv1.RestoreAgentsRequest{}, fault.AgentExists},
		"it is started":  {saved, &registryv1.RestoreAgentsRequest{Replace: true}, fault.AgentExists},
		"not in it":      {saved, &registryv1.RestoreAgentsRequest{AgentIds: []string{"a9"}}, fault.AgentNotFound},
		"a bad name":     {saved, &registryv1.RestoreAgentsRequest{NewAgentId: "../x"}, fault.InvalidArgument},
		"cut off":        {saved[:len(saved)*2/3], &registryv1.RestoreAgentsRequest{NewAgentId: "a2"}, fault.InvalidArgument},
		"no manifest":    {saved[:len(saved)-3000], &registryv1.RestoreAgentsRequest{NewAgentId: "a2"}, fault.InvalidArgument},
		"a flipped bit":  {flipped, &registryv1.RestoreAgentsRequest{NewAgentId: "a2"}, fault.InvalidArgument},
		"not a tar":      {bytes.Repeat([]byte("x"), 5000), &registryv1.RestoreAgentsRequest{}, fault.InvalidArgument},
		"nothing at all": {[]byte{0}, &registryv1.RestoreAgentsRequest{}, fault.InvalidArgument},
	} {
		if _, err := restore(t.Context(), w, c.tar, c.req); !fault.Is(fault.From(err), c.reason) {
			t.Errorf("%s: %v", what, err)
		}
		if got := names(); len(got) != 1 {
			t.Errorf("%s: left %v", what, got)
		}
	}

	done, err := restore(t.Context(), w, saved, &registryv1.RestoreAgentsRequest{NewAgentId: "a2"})
	if err != nil || len(done) != 1 || done[0].GetAgentId() != "a2" {
		t.Fatalf("%v, %v", done, err)
	}
	if st, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a2"}); err != nil || st.GetAgent().GetStarted() || st.GetInbox().GetPending() != 0 {
		t.Errorf("under another name: %v, %v", st, err)
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a2"}); err != nil {
		t.Error(err)
	}
	if turn := w.Say(t, "a2", Peer("p"), "say: hello"); w.Reply(t, turn) != "hello" {
		t.Errorf("under another name: %v", turn)
	}

	last := w.Say(t, "a1", Peer("p"), "say: after the backup")
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	done, err = restore(t.Context(), w, saved, &registryv1.RestoreAgentsRequest{Replace: true})
	if err != nil || len(done) != 1 || done[0].GetLastInboxId() < last.GetInboxId() {
		t.Fatalf("replace: %v, %v", done, err)
	}
	if _, err := os.Stat(filepath.Join(done[0].GetKept(), "inbox", "events.db")); err != nil {
		t.Errorf("the old one is not kept: %v", err)
	}
	if turn := w.Say(t, "a1", Peer("p"), "say: again"); w.Reply(t, turn) != "again" || turn.GetInboxId() <= last.GetInboxId() {
		t.Errorf("after the replacement: %v", turn)
	}
	// The watch stands on the new inbox: a push behind our back is seen in it.
	id := w.InsertOutside(t, "a1", "INSERT INTO events(source,type,content) VALUES(?,'message','say: from outside')", Peer("p"))
	if turn := w.Await(t, "a1", id); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("a push from outside: %v", turn)
	}
	sound(t, w.Home, invariant.Options{})
}
