//go:build proof

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// differs are the fields whose values belong to where and when one asks, and not to the
// agent: paths, what fsck counts of files and databases, and how long ago something was.
var differs = []string{"path", "files", "databases", "age_seconds"}

// alike takes what differs out of an answer.
func alike(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range maps.Clone(v) {
			if slices.Contains(differs, k) {
				delete(v, k)
				continue
			}
			v[k] = alike(v[k])
		}
	case []any:
		for i := range v {
			v[i] = alike(v[i])
		}
	}
	return v
}

// asJSON is a message as JSON.
func asJSON(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := protojson.Marshal(m)
	var v any
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err == nil {
		b, err = json.Marshal(alike(v))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What people ask of an agent is answered the same, with the same hashes, by the files of
// a home, by a database after migrate-store, and by the files again when it came back.
func TestMigratedAnswersTheSame(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	ctl := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &errs, func(name string) string {
			return map[string]string{"THECLAW_HOME": home}[name]
		}); code != 0 {
			t.Fatalf("agentctl %q: exit %d\n%s%s", args, code, out.String(), errs.String())
		}
		return out.String()
	}
	stop := services(t, home)
	ctl("init", "alice", "--provider", "offline") // it answers peers by choice alone
	sink, e := world.NewSink(t), owner(t, home)
	conf, err := e.Agents().ReadAgentFile(t.Context(), &registry.ReadAgentFileRequest{AgentId: "alice", Name: "config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Agents().WriteAgentFile(t.Context(), &registry.WriteAgentFileRequest{AgentId: "alice", Name: "config.yaml", Content: append(conf.GetContent(), "\n"+sink.Config()+"\n"...)}); err != nil {
		t.Fatal(err)
	}
	ctl("start", "alice")
	for _, text := range []string{"hello", "say: " + world.Refused, "say: naïve ⏎ \"quoted\" \\ text"} {
		ctl("send", "alice", "--source", world.Peer("bob"), "--type", "message", "--content", world.Message(text), "--wait")
	}
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) { // the one that the receiver refuses is a dead letter, the others are sent
		if strings.Contains(ctl("dlq", "list", "alice", "--json"), "alice") && len(sink.Arrivals("alice")) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d arrived, dead: %s", len(sink.Arrivals("alice")), ctl("dlq", "list", "alice", "--json"))
		}
	}
	ctl("stop", "alice")

	threads := []string{"inbox", "threads/peers/main-bob"}
	questions := [][]string{{"explain", "alice", "1"}, {"explain", "alice", "2"}, {"explain", "alice", "3"}, {"threads", "alice"}, {"usage", "alice"}, {"dlq", "list", "alice"}, {"turns", "alice"}, {"fsck"}}
	for _, th := range threads {
		questions = append(questions, []string{"events", "alice", th})
	}
	answers := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, q := range questions {
			d := json.NewDecoder(strings.NewReader(ctl(append(q, "--json")...)))
			var all []any
			for d.More() {
				var v any
				if err := d.Decode(&v); err != nil {
					t.Fatalf("%q: %v", q, err)
				}
				all = append(all, alike(v))
			}
			b, err := json.Marshal(all)
			if err != nil || len(all) == 0 {
				t.Fatalf("%q: %d answers, %v", q, len(all), err)
			}
			out[strings.Join(q, " ")] = string(b)
		}
		ask := owner(t, home)
		for _, th := range threads { // what no command shows as it is
			ref := &registry.ThreadRef{AgentId: "alice", ThreadId: th}
			about, err := ask.Threads().GetThread(t.Context(), &registry.GetThreadRequest{Thread: ref})
			if err != nil {
				t.Fatal(err)
			}
			out["about "+th] = asJSON(t, about)
		}
		sent, err := ask.Deliveries().ListDeliveries(t.Context(), &registry.ListDeliveriesRequest{AgentId: "alice"})
		if err != nil || len(sent.GetDeliveries()) != 3 {
			t.Fatalf("%v, %v", sent, err)
		}
		out["deliveries"] = asJSON(t, sent)
		return out
	}
	was := answers()
	same := func(where string) {
		t.Helper()
		is := answers()
		for q, want := range was {
			if is[q] != want {
				t.Errorf("%s, %s:\n%s\nwas\n%s", where, q, is[q], want)
			}
		}
	}
	dsn := filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(dsn, []byte(pgtest.Database(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := ""
	move := func(to string) {
		t.Helper()
		var said struct{ Agents []struct{ Digest string } }
		if err := json.Unmarshal([]byte(ctl("migrate-store", "alice", "--to", to, "--dsn", "file:"+dsn, "--apply", "--json")), &said); err != nil || len(said.Agents) != 1 {
			t.Fatalf("%v: %+v", err, said)
		}
		if digest != "" && digest != said.Agents[0].Digest {
			t.Errorf("to %s: digest %s, was %s", to, said.Agents[0].Digest, digest)
		}
		digest = said.Agents[0].Digest
	}
	settings := filepath.Join(home, "theclaw.yaml")
	plain, err := os.ReadFile(settings)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	stop()
	move("database")
	if err := os.WriteFile(settings, append(slices.Clone(plain), "\nstorage: {engine: postgres, dsns: [\"file:"+dsn+"\"]}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	stop = services(t, home)
	same("in the database")
	stop()

	if err := os.WriteFile(settings, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	move("home")
	services(t, home)
	same("back in the home")
}
