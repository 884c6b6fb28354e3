package compat_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/standin"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// machine is a home as the 1.0.9 tools leave it, and their programs.
type machine struct {
	t         *testing.T
	bin, home string
}

// run starts a program and answers what it prints, and its exit code.
func (m *machine) run(ctx context.Context, name string, args ...string) (string, int) {
	m.t.Helper()
	c := exec.CommandContext(ctx, filepath.Join(m.bin, name), args...)
	c.Env = []string{"PATH=" + m.bin + ":/usr/bin:/bin", "HOME=" + filepath.Dir(m.home), "NOTIFIER_HOME=" + filepath.Join(filepath.Dir(m.home), "nh")}
	out, err := c.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || failed.ExitCode() < 0) {
		m.t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out), c.ProcessState.ExitCode()
}

func (m *machine) must(name string, args ...string) string {
	m.t.Helper()
	out, code := m.run(m.t.Context(), name, args...)
	if code != 0 {
		m.t.Fatalf("%s %q: exit code %d: %s", name, args, code, out)
	}
	return out
}

func (m *machine) dir(path string) string {
	return filepath.Join(m.home, "agents/e1", filepath.FromSlash(path))
}

func (m *machine) push(thread, source, text string) {
	m.t.Helper()
	m.must("thread", "push", "--thread", m.dir(thread), "--source", source, "--type", "message", "--content", text)
}

func (m *machine) exec(thread, statement string) {
	m.t.Helper()
	if _, err := open(m.t, m.dir(thread)).ExecContext(m.t.Context(), statement); err != nil {
		m.t.Fatal(err)
	}
}

const (
	talkAlice = "external:tui:tui-main:dm:alice:alice"
	talkBob   = "external:tui:tui-main:dm:Bob:Bob"
	golden    = "../../cmd/thread/testdata/golden" // a thread that the real tool wrote
	recorded  = "../../cmd/agentctl/internal/migrate/testdata/"
)

// earlier makes the home: the recorded tree and settings of the earlier agent's init, the
// recorded thread as the conversation with alice, and what its programs write with the
// commands that they have.
func earlier(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, bin: standin.Dir(t, "cmd/agentctl"), home: filepath.Join(t.TempDir(), ".theclaw")}
	for line := range strings.Lines(read(t, recorded+"init-tree.txt")) {
		switch name := strings.TrimSpace(line); filepath.Base(name) {
		case "events.db", "events.jsonl", "config.yaml", "inbox", "run":
		case "IDENTITY.md", "USAGE.md":
			put(t, m.dir(name), "# e1\n")
		default:
			if err := os.MkdirAll(m.dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, m.dir("config.yaml"), strings.NewReplacer("/srv/claw-a/home/.theclaw", m.home, "provider: fake", "provider: offline", "fake-model", "offline").
		Replace(read(t, recorded+"config.yaml")))
	if err := os.RemoveAll(m.dir("inbox")); err != nil {
		t.Fatal(err)
	}
	m.must("thread", "init", m.dir("inbox"))
	m.must("thread", "subscribe", "--thread", m.dir("inbox"), "--consumer", "inbox", "--handler", "agent run e1")
	for _, from := range []string{talkAlice, talkBob, talkAlice, talkBob} {
		m.push("inbox", from, `{"text":"say: welcome back"}`)
	}
	m.exec("inbox", "UPDATE events SET created_at = '2026-01-02T03:04:05.000Z' WHERE id < 4")
	m.must("thread", "pop", "--thread", m.dir("inbox"), "--consumer", "inbox", "--last-event-id", "2")

	alice := "threads/peers/tui-main-alice"
	if err := os.CopyFS(m.dir(alice), os.DirFS(golden)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(m.dir(alice), func(path string, e fs.DirEntry, err error) error { // those of the repository may be read-only
		if err == nil && !e.IsDir() {
			err = os.Chmod(path, 0o644)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.exec(alice, "UPDATE subscriptions SET handler_cmd = 'agent deliver --thread "+m.dir(alice)+" --consumer outbound' WHERE consumer_id = 'outbound'")

	bob := "threads/peers/tui-main-Bob"
	m.must("thread", "init", m.dir(bob))
	m.must("thread", "subscribe", "--thread", m.dir(bob), "--consumer", "outbound", "--handler", "agent deliver --thread "+m.dir(bob)+" --consumer outbound",
		"--filter", "type = 'message' AND source = 'self'")
	const to = `,"reply_context":{"channel_type":"external","channel_id":"tui-main","peer_id":"Bob","session_id":"Bob"}}`
	m.push(bob, talkBob, `{"text":"I am Bob"}`)
	m.push(bob, "self", `{"text":"hi Bob"`+to)
	m.must("thread", "pop", "--thread", m.dir(bob), "--consumer", "outbound", "--last-event-id", "2")
	m.push(bob, "self", `{"text":"not sent yet"`+to)
	put(t, m.dir("memory/user-Bob.md"), "about Bob\n")
	put(t, m.dir("memory/agent.md"), "about me\n")
	return m
}

// R5, R6, R7: a home of the 1.0.9 tools is taken over, used and given back: what waited is
// named, what was skipped is not answered, and the files that those tools wrote are as
// they wrote them, with the new events behind. Taken over once more, nothing is answered
// twice.
func TestThereAndBack(t *testing.T) {
	m := earlier(t)
	ours := func(want int, args ...string) string {
		t.Helper()
		out, code := m.run(t.Context(), "agentctl", append([]string{"--home", m.home}, args...)...)
		if code != want {
			t.Errorf("agentctl %q: exit code %d, want %d:\n%s", args, code, want, out)
		}
		return out
	}
	before, files := databases(t, m), texts(t, m)
	dry := ours(1, "migrate", "--all")
	for _, want := range []string{"e1: 2 messages wait and will be answered when the agent is started", "e1: 1 reply was not sent in 1 conversation", "tui-main-Bob is looked for under another name"} {
		if !strings.Contains(dry, want) {
			t.Errorf("a dry run does not say %q:\n%s", want, dry)
		}
	}
	if !maps.Equal(files, texts(t, m)) || fmt.Sprint(before) != fmt.Sprint(databases(t, m)) {
		t.Error("a dry run changed something")
	}

	ours(0, "migrate", "--all", "--apply", "--skip-before", "2026-06-01")
	sink := world.NewSink(t)
	put(t, m.dir("config.yaml"), strings.Replace(read(t, m.dir("config.yaml")), "via: xgw", "via: sink", 1)+
		"channels:\n  sink: {type: webhook, url: \""+sink.URL+"\", allow_private: true}\n")
	w := world.Start(t, quick(m.home))
	if turn := w.Await(t, "e1", 4); w.Reply(t, turn) != "welcome back" || turn.GetThreadId() != "threads/peers/tui-main-%42ob" {
		t.Errorf("what waited: %v", turn)
	}
	if turn := w.Await(t, "e1", 3); turn.GetReplyEventId() != 0 || !strings.Contains(turn.GetError(), "--skip-before") {
		t.Errorf("what was skipped: %v", turn)
	}
	say(t, w, "e1", talkAlice, "and again")
	await(t, "three replies", func() bool { return len(sink.Arrivals("e1")) == 3 })
	probes(t, m, w)
	w.Stop()
	var arrived []string
	for _, a := range sink.Arrivals("e1") {
		arrived = append(arrived, a.Text)
	}
	if slices.Sort(arrived); fmt.Sprint(arrived) != "[and again not sent yet pushed 1 pushed 2 pushed 3 welcome back]" {
		t.Errorf("arrived %q", arrived)
	}

	edited := read(t, m.dir("config.yaml"))
	ours(1, "migrate", "--all", "--undo") // a dry run: something is to be done
	if read(t, m.dir("config.yaml")) != edited {
		t.Error("a dry run changed config.yaml")
	}
	ours(0, "migrate", "--all", "--undo", "--apply")
	compare(t, before, databases(t, m))
	after := texts(t, m)
	for name, was := range files {
		switch now, there := after[name]; {
		case strings.HasSuffix(name, "events.jsonl"):
			if !strings.HasPrefix(now, was) {
				t.Errorf("%s lost lines", name)
			}
		case strings.Contains(name, "/logs/"), name == "run.lock": // they are renamed by each push; a stale lock is put aside
		case !there || now != was:
			t.Errorf("%s: %q, and it was %q", name, now, was)
		}
	}
	if kept, err := filepath.Glob(m.dir("config.yaml.migrated-*")); err != nil || !slices.ContainsFunc(kept, func(p string) bool { return read(t, p) == edited }) {
		t.Errorf("the settings changed meanwhile are not kept: %v %v", kept, err)
	}
	ours(0, "migrate", "--all", "--undo", "--apply") // nothing is left to do

	// The earlier agent answers one more, and then it is ours again.
	m.push("inbox", talkAlice, `{"text":"say: answered there"}`)
	m.must("thread", "pop", "--thread", m.dir("inbox"), "--consumer", "inbox", "--last-event-id", fmt.Sprint(head(t, m)))
	ours(0, "migrate", "--all", "--apply")
	w = world.Start(t, quick(m.home))
	say(t, w, "e1", talkBob, "once more")
	for id := int64(1); id < head(t, m); id++ {
		if turn := w.Await(t, "e1", id); turn.GetFate() != registryv1.Fate_FATE_SILENT {
			t.Errorf("message %d: %v", id, turn)
		}
	}
}

// probes: doctor and fsck answer 0 while the thread program pushes; its logs have the
// modes that its umask gives them, which is a finding of its own.
func probes(t *testing.T, m *machine, w *world.World) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3 {
			out, code := m.run(t.Context(), "thread", "push", "--thread", m.dir("inbox"), "--source", talkBob, "--type", "message",
				"--content", fmt.Sprintf(`{"text":"say: pushed %d"}`, i+1))
			if code != 0 {
				t.Errorf("push: exit code %d: %s", code, out)
			}
		}
	}()
	for pushing := true; pushing; {
		select {
		case <-done:
			pushing = false
		default:
		}
		out, code := m.run(t.Context(), "agentctl", "--home", m.home, "--runner", "unix://"+filepath.Join(m.home, "run/runner0.sock"), "doctor", "--json")
		var r struct {
			Checks []struct{ Check, Status, Detail string }
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Checks) == 0 {
			t.Fatalf("doctor: exit code %d, %v: %s", code, err, out)
		}
		for _, c := range r.Checks {
			if c.Status == "problem" {
				t.Errorf("doctor: %+v", c)
			}
		}
		out, code = m.run(t.Context(), "agentctl", "--home", m.home, "fsck", "--json")
		var f struct {
			Live     bool
			Findings []invariant.Finding
		}
		// What it tells people about a registry at work comes first.
		if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &f); err != nil || !f.Live {
			t.Fatalf("fsck: exit code %d, %v: %s", code, err, out)
		}
		for _, one := range f.Findings {
			if one.Severity != invariant.Note || code != 0 { // logs that the thread tool makes
				t.Errorf("fsck: exit code %d: %+v", code, one)
			}
		}
	}
	for id := int64(6); id <= 8; id++ {
		w.Await(t, "e1", id)
	}
	await(t, "the replies", func() bool { n, err := pending(t, w); return err == nil && n == 0 })
}

// pending are the replies that wait to be sent.
func pending(t *testing.T, w *world.World) (int64, error) {
	st, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "e1"})
	return st.GetOutboundPending(), err
}

func head(t *testing.T, m *machine) (id int64) {
	t.Helper()
	if err := open(t, m.dir("inbox")).QueryRowContext(t.Context(), "SELECT MAX(id) FROM events").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// database is what a database says: its tables, and their rows.
type database struct {
	schema, subscriptions string
	events                []string
	acked                 map[string]int64
}

// databases reads those of the agent, by thread.
func databases(t *testing.T, m *machine) map[string]database {
	t.Helper()
	out := map[string]database{}
	for _, pattern := range []string{"inbox/events.db", "threads/*/*/events.db"} {
		found, err := filepath.Glob(m.dir(pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			d := database{acked: map[string]int64{}}
			db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
			if err != nil {
				t.Fatal(err)
			}
			rows := func(query string, each func(text string, n int64)) {
				t.Helper()
				r, err := db.QueryContext(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				for r.Next() {
					var text string
					var n int64
					if err := r.Scan(&text, &n); err != nil {
						t.Fatal(err)
					}
					each(text, n)
				}
				if err := r.Err(); err != nil {
					t.Fatal(err)
				}
			}
			rows("SELECT name || ': ' || COALESCE(sql, ''), 0 FROM sqlite_master ORDER BY name", func(text string, _ int64) { d.schema += text + "\n" })
			rows("SELECT consumer_id || ' ' || handler_cmd || ' ' || COALESCE(filter, 'NULL'), 0 FROM subscriptions ORDER BY rowid", func(text string, _ int64) { d.subscriptions += text + "\n" })
			rows("SELECT json_array(id, created_at, source, type, subtype, content), 0 FROM events ORDER BY id", func(text string, _ int64) { d.events = append(d.events, text) })
			rows("SELECT consumer_id, last_acked_id FROM consumer_progress", func(text string, n int64) { d.acked[text] = n })
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(m.dir(""), filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			out[rel] = d
		}
	}
	return out
}

// compare finds what the earlier tools would see of themselves in another way.
func compare(t *testing.T, before, after map[string]database) {
	t.Helper()
	for name, was := range before {
		now, there := after[name]
		if !there {
			t.Errorf("%s is gone; there are %v", name, slices.Collect(maps.Keys(after)))
			continue
		}
		if now.schema != was.schema {
			t.Errorf("%s has the schema\n%s\nand had\n%s", name, now.schema, was.schema)
		}
		if now.subscriptions != was.subscriptions {
			t.Errorf("%s has the subscriptions\n%s\nand had\n%s", name, now.subscriptions, was.subscriptions)
		}
		if len(now.events) < len(was.events) || !slices.Equal(now.events[:len(was.events)], was.events) {
			t.Errorf("%s: the recorded events are\n%s", name, strings.Join(now.events, "\n"))
		}
		for consumer, id := range was.acked {
			if now.acked[consumer] < id || now.acked[consumer] != int64(len(now.events)) && name != "threads/peers/tui-main-alice" {
				t.Errorf("%s: %s is acknowledged up to %d of %d, and was up to %d", name, consumer, now.acked[consumer], len(now.events), id)
			}
		}
	}
}

// texts are the files of the agent but for its databases, by path.
func texts(t *testing.T, m *machine) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(m.dir(""), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !strings.Contains(e.Name(), "events.db") {
			rel, _ := filepath.Rel(m.dir(""), path) // it is below
			out[rel] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
