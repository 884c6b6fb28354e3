package world

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// compose makes a backup with the inbox of one and the rest of a later one: what
// a backup holds when messages were accepted and begun while it was made.
func compose(t *testing.T, first, later []byte) []byte {
	t.Helper()
	var inbox []byte
	const name = "agents/a1/inbox/events.db"
	each := func(b []byte, fn func(*tar.Header, []byte)) {
		t.Helper()
		for r := tar.NewReader(bytes.NewReader(b)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			body, readErr := io.ReadAll(r)
			if err = errors.Join(err, readErr); err != nil {
				t.Fatal(err)
			}
			fn(h, body)
		}
	}
	each(first, func(h *tar.Header, body []byte) {
		if h.Name == name {
			inbox = body
		}
	})
	type file struct {
		Name   string `json:"name"`
		Size   int    `json:"size"`
		SHA256 string `json:"sha256"`
	}
	var out bytes.Buffer
	var files []file
	w := tar.NewWriter(&out)
	each(later, func(h *tar.Header, body []byte) {
		switch h.Name {
		case name:
			body = inbox
		case "manifest.json":
			var m map[string]any
			if err := json.Unmarshal(body, &m); err != nil {
				t.Fatal(err)
			}
			m["files"] = files
			body, _ = json.Marshal(m)
		}
		if h.Name != "backup.json" {
			files = append(files, file{h.Name, len(body), fmt.Sprintf("%x", sha256.Sum256(body))})
		}
		h.Size = int64(len(body))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// P1, RELIABILITY 5: what the threads of a backup hold beyond its inbox. A reply
// that waited is sent, flagged; a turn that was begun is aborted; no id of either
// is handed out again.
func TestRestoreOfWhatTheInboxDoesNotKnow(t *testing.T) {
	sink, hold, arrived := NewSink(t), make(chan struct{}), make(chan struct{}, 100)
	var open atomic.Bool
	busy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		first := !open.Load()
		<-hold // the first home dies before it learns whether this arrived
		if first {
			http.Error(rw, "not yet", http.StatusServiceUnavailable)
			return
		}
		sink.ServeHTTP(rw, r)
		arrived <- struct{}{}
	}))
	t.Cleanup(busy.Close)
	sink.URL = busy.URL
	w := Start(t, Options{})
	w.Create(t, "a1", sink.Config())
	w.Say(t, "a1", Peer("p"), "say: known")
	first := save(t, w.Client, &registryv1.BackupAgentsRequest{})
	w.Say(t, "a1", Peer("p"), "say: beyond")
	begunIn := &registryv1.ThreadRef{AgentId: "a1", ThreadId: "threads/peers/main-q"}
	if _, err := w.Threads.EnsureThread(t.Context(), &registryv1.EnsureThreadRequest{Thread: begunIn}); err != nil {
		t.Fatal(err)
	}
	events, err := w.Threads.WatchEvents(t.Context(), &registryv1.WatchEventsRequest{Thread: begunIn})
	if err != nil {
		t.Fatal(err)
	}
	begun, err := w.Push(t.Context(), "a1", Peer("q"), "slow: 600", "")
	if err != nil {
		t.Fatal(err)
	}
	for { // until it is recorded
		m, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.GetEvents()) > 0 {
			break
		}
	}
	later := save(t, w.Client, &registryv1.BackupAgentsRequest{})
	close(hold)
	run := w.Ask(t, "a1", begun, 0).GetKey()
	if _, err := w.Runner.AbortRun(t.Context(), &runnerv1.AbortRunRequest{AgentId: "a1", RunId: run}); err != nil {
		t.Fatal(err) // a stop would wait for it
	}
	w.Stop()
	open.Store(true)

	v := Start(t, Options{})
	done, err := restore(t.Context(), v, compose(t, first, later), &registryv1.RestoreAgentsRequest{})
	if err != nil || len(done) != 1 || done[0].GetAborted() != 1 || done[0].GetLastInboxId() != begun {
		t.Fatalf("%v, %v; want 1 aborted, last id %d", done, err, begun)
	}
	turn := v.Say(t, "a1", Peer("p"), "say: new")
	if turn.GetInboxId() <= begun {
		t.Errorf("id %d was handed out again (last %d)", turn.GetInboxId(), begun)
	}
	for range 3 { // known, beyond, new
		select {
		case <-arrived:
		case <-time.After(patience):
			t.Fatalf("arrived: %+v", sink.Arrivals(""))
		}
	}
	got := sink.Arrivals("a1")
	for i, want := range []struct {
		text    string
		flagged bool
	}{{"known", true}, {"beyond", true}, {"new", false}} {
		if got[i].Text != want.text || got[i].MaybeDuplicate != want.flagged {
			t.Errorf("arrival %d: %+v, want %+v", i, got[i], want)
		}
	}
	sound(t, v.Home, invariant.Options{})
}

// I21, I23, I24: an agent that is restored under another name has its conversations under the
// session keys of that name, and the two go on apart from each other. The list of sessions
// says what the conversations say, which the backup read later.
func TestRestoreUnderAnotherName(t *testing.T) {
	for name, shared := range map[string]bool{"home": false, "database": true} {
		t.Run(name, func(t *testing.T) {
			o := Options{}
			if shared {
				o.DSN = pgtest.Database(t)
			}
			w := Start(t, o)
			w.Create(t, "a1", "outbound: []")
			say := func(agent, text string) {
				t.Helper()
				r, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
					Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: "key " + agent + text,
					Events: []*registryv1.NewEvent{{Source: Peer("bob"), Type: "message", Content: Message(text), SessionKey: "agent:" + agent + ":session:Notes"}},
				})
				if err != nil {
					t.Fatal(err)
				}
				w.Await(t, agent, r.GetEventIds()[0])
			}
			say("a1", "say: one")
			first := save(t, w.Client, &registryv1.BackupAgentsRequest{})
			if _, err := w.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{Key: "agent:a1:session:Notes"}); err != nil {
				t.Fatal(err)
			}
			say("a1", "say: two")
			title := "notes"
			if _, err := w.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{Key: "agent:a1:session:Notes", Title: &title}); err != nil {
				t.Fatal(err)
			}
			later := save(t, w.Client, &registryv1.BackupAgentsRequest{})
			if _, err := restore(t.Context(), w, compose(t, first, later), &registryv1.RestoreAgentsRequest{AgentIds: []string{"a1"}, NewAgentId: "a2"}); err != nil {
				t.Fatal(err)
			}
			sound(t, w.Home, invariant.Options{DSN: o.DSN})
			copied, err := w.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: "a2"})
			if err != nil || len(copied.GetSessions()) != 1 || copied.GetSessions()[0].GetTitle() != title {
				t.Errorf("the list of a2 as it was restored is %v, %v", copied, err)
			}
			if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a2"}); err != nil {
				t.Fatal(err)
			}
			say("a2", "say: three")
			for agent, messages := range map[string]int64{"a1": 2, "a2": 2} { // of a2 the second message is not in the inbox of the backup
				got, err := w.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: agent})
				if err != nil {
					t.Fatal(err)
				}
				if list := got.GetSessions(); len(list) != 1 || list[0].GetKey() != "agent:"+agent+":session:Notes" || list[0].GetTitle() != title || !shared && list[0].GetMessages() != messages {
					t.Errorf("the list of %s is %v", agent, list)
				}
				one, err := w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: "agent:" + agent + ":session:notes"})
				if err != nil || one.GetSession().GetEpochFromId() == 0 || one.GetSession().GetThreadId() != "threads/named/session-%4Eotes" {
					t.Errorf("the session of %s is %v, %v", agent, one, err)
				}
			}
			w.Stop()
			found, _, err := invariant.Check(t.Context(), layout.At(w.Home), invariant.Options{DSN: o.DSN, Live: shared})
			if err != nil || len(found) > 0 {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}
