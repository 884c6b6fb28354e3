package cluster_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// everywhere is every text of a database, in which words may stand.
const everywhere = `SELECT 'event', e::text FROM event e UNION ALL SELECT 'step', s::text || convert_from(COALESCE(s.result, ''), 'UTF8') FROM step s
	UNION ALL SELECT 'turn', t::text FROM turn t UNION ALL SELECT 'delivery', d::text FROM delivery d UNION ALL SELECT 'memory', m::text FROM memory m
	UNION ALL SELECT 'agent_file', convert_from(f.content, 'UTF8') FROM agent_file f UNION ALL SELECT 'agent_log', l::text FROM agent_log l
	UNION ALL SELECT 'approval', a::text FROM approval a UNION ALL SELECT 'question', q::text FROM question q UNION ALL SELECT 'fate', x::text FROM fate x`

// inDatabase runs a statement, and answers the two columns of a SELECT.
func inDatabase(t *testing.T, url, q string) (rows [][2]string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	backendtest.Must(t, 0, err)
	defer func() { _ = c.Close(t.Context()) }()
	if !strings.HasPrefix(q, "SELECT") {
		_, err = c.Exec(t.Context(), q)
		backendtest.Must(t, 0, err)
		return nil
	}
	r, err := c.Query(t.Context(), q)
	backendtest.Must(t, 0, err)
	rows, err = pgx.CollectRows(r, func(row pgx.CollectableRow) (v [2]string, err error) { return v, row.Scan(&v[0], &v[1]) })
	return backendtest.Must(t, rows, err)
}

// tablesWith counts by table what holds words.
func tablesWith(t *testing.T, url, words string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range inDatabase(t, url, everywhere) {
		if strings.Contains(r[1], words) {
			out[r[0]]++
		}
	}
	return out
}

// Several registries over PostgreSQL forget a peer as one with files does, whichever of
// them is asked: its words stand in no row, the chains hold, what was erased is guarded,
// and nobody else loses anything.
func TestErasePeerShared(t *testing.T) {
	const bobs, carols = "xyzzy-of-bob", "plugh-of-carol"
	url, w, other := beside(t)
	check := func() []invariant.Finding {
		found, _, err := invariant.Check(t.Context(), layout.At(w.Home), invariant.Options{DSN: url, Live: true})
		return backendtest.Must(t, found, err)
	}
	w.Create("a1")
	w.Asks("a1", "bob", bobs)
	w.Asks("a1", "bob", bobs+" again")
	w.Asks("a1", "carol", carols)
	if _, err := w.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: `{"version":1,"agents":{"a1":{"allowlist":[{"pattern":"/x","lastUsedCommand":"` + bobs + `"}]}}}`}); err != nil {
		t.Fatal(err)
	}
	if all := string(w.Export("a1", "bob")); !strings.Contains(all, `"command":"echo `+bobs+`"`) || strings.Contains(all, carols) {
		t.Error("the question about bob is not exported, or that about carol is")
	}
	for name, words := range map[string]string{"memory/user-main-bob.md": bobs, "memory/thread-threads%2Fpeers%2Fmain-bob.md": bobs, "memory/past/thread-threads%2Fpeers%2Fmain-bob.7.md": bobs, "memory/user-main-carol.md": carols} {
		backendtest.Must(t, backendtest.Must2(w.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "a1", Name: name, Content: []byte(words)})), nil)
	}
	// Lines of bob alone, and beside one of carol.
	inDatabase(t, url, `INSERT INTO agent_log(agent_id, at, level, text) VALUES
		('a1', ARRAY[now(), now()], '{INFO,WARN}', ARRAY['route: inbox event 1 from bob, `+bobs+`', 'threads/peers/main-bob: `+bobs+`']),
		('a1', ARRAY[now(), now(), now()], '{INFO,WARN,INFO}', ARRAY['route: inbox event 1, `+bobs+`', 'route: inbox event 3, `+carols+`', 'threads/peers/main-bob: `+bobs+`'])`)

	all := string(other.Export("a1", "bob"))
	if strings.Contains(all, carols) || strings.Count(all, bobs) < 2*5+2 || !strings.Contains(all, "deliveries-1.jsonl") || !strings.Contains(all, `"text":"which `+bobs) {
		t.Errorf("exported %d of bob's words, or some of carol's", strings.Count(all, bobs))
	}

	if _, err := other.Erase("a1", "bob", true); !fault.Is(err, fault.LeaseHeld) {
		t.Errorf("erased at work: %v", err)
	}
	w.StopAgent("a1")
	before, hers := tablesWith(t, url, bobs), tablesWith(t, url, carols)
	t.Log(before, hers)
	dry, err := other.Erase("a1", "bob", false)
	if backendtest.Must(t, dry, err); len(before) < 5 || len(tablesWith(t, url, bobs)) != len(before) || len(dry.GetThreads()) != 2 || len(dry.GetFiles()) != 3 || len(w.Questions("a1")) != 3 {
		t.Fatalf("counted %v; in %v; questions %q", dry, before, w.Questions("a1"))
	}
	// One that ends before the inbox has done the rest, and is finished by the next.
	inDatabase(t, url, "ALTER TABLE event ADD CONSTRAINT ends CHECK (thread_id <> 'inbox' OR content <> '[erased]')")
	if _, err := w.Erase("a1", "bob", true); err == nil {
		t.Error("erased against a constraint")
	}
	if left := tablesWith(t, url, bobs); len(left) != 1 || left["event"] != 2 {
		t.Errorf("when it ended in between: %v", left)
	}
	if found := check(); len(found) > 0 {
		t.Errorf("found in between %v", found)
	}
	inDatabase(t, url, "ALTER TABLE event DROP CONSTRAINT ends")
	for range 2 { // a repetition changes nothing
		backendtest.Must(t, backendtest.Must2(other.Erase("a1", "bob", true)), nil)
		if left := tablesWith(t, url, bobs); len(left) > 0 {
			t.Fatalf("still in %v", left)
		}
	}
	if now := tablesWith(t, url, carols); len(now) != len(hers) || now["event"] != hers["event"] || now["agent_log"] != 1 {
		t.Errorf("carol has %v, and had %v", now, hers)
	}
	if log := inDatabase(t, url, "SELECT level::text, text::text FROM agent_log WHERE text::text LIKE '%"+carols+"%'"); len(log) != 1 || log[0] != [2]string{"{WARN}", `{"route: inbox event 3, ` + carols + `"}`} {
		t.Errorf("carol's row of the log is %q", log)
	}
	if q := w.Questions("a1"); len(q) != 1 || !strings.Contains(q[0], carols) {
		t.Errorf("questions %q", q)
	}
	if found := check(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: 1})
	if got := backendtest.Must(t, turn, err).GetTurn(); got.GetFate() != registryv1.Fate_FATE_REPLIED || len(got.GetSteps()) != 2 {
		t.Errorf("the turn is %v", got)
	}

	backendtest.Must(t, backendtest.Must2(w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"})), nil)
	w.Push("a1", "bob", "hello again", "")
	w.Reply("a1", "hi")
	w.Deliver("a1", "threads/peers/main-bob")
	w.StopAgent("a1")
	if found := check(); len(found) > 0 {
		t.Errorf("found later %v", found)
	}
	for _, thread := range []string{"inbox", "threads/peers/main-bob"} { // guarded like any other event
		one := " WHERE thread_id = '" + thread + "' AND id = 1"
		for _, change := range [][2]string{
			{"content = 'I never said that'", "content = '[erased]'"},
			{"source = 'external:' || source", "source = substr(source, 10)"},
			{"erased_key = 'x' || erased_key", "erased_key = substr(erased_key, 2)"},
			{"erased_proof = NULL, prev = sha256, sha256 = erased_proof", ""},
		} {
			inDatabase(t, url, "UPDATE event SET "+change[0]+one)
			if found := check(); len(found) == 0 {
				t.Errorf("%s in %s: nobody noticed", change[0], thread)
			}
			if change[1] != "" {
				inDatabase(t, url, "UPDATE event SET "+change[1]+one)
			}
		}
	}
}
