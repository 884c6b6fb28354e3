package storetest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// Approvals tests that an engine keeps questions and the policy for commands. db has none
// before; forget removes an agent. The agent a exists.
func Approvals(t *testing.T, db store.Approvals, forget func(agent string) error) {
	ctx, now := t.Context(), time.Now().Truncate(time.Millisecond)
	asked := store.Approval{
		ID: "1", Agent: "a", Thread: "threads/main", Key: "k", Command: "ls", Cwd: "/w", Reason: "why", Digest: "d", State: "pending", Requested: now, Expires: now.Add(time.Minute),
		Kind: "exec", Tool: "exec", Summary: "git log", Patterns: `[{"pattern":"/usr/bin/git"}]`, External: true,
	}
	read := func(what string, want store.Approval) {
		t.Helper()
		got, there, err := db.Approval(ctx, "1", "", "")
		ok(t, err)
		equal(t, what, []any{got, there}, []any{want, true})
	}
	policy := func(what string, version int64, body string) {
		t.Helper()
		p, err := db.ExecPolicy(ctx)
		ok(t, err)
		equal(t, what, []any{p.Version, string(p.Body)}, []any{version, body})
	}
	ok(t, db.PutApproval(ctx, asked, "", nil))
	read("asked", asked)
	policy("none", 0, "")

	// S2-15: the answer and what it adds to the policy are one change.
	yes := asked
	yes.State, yes.Decision, yes.By, yes.Expires = "approved", "always", "owner", now.Add(time.Hour)
	is(t, db.PutApproval(ctx, yes, "pending", &store.ExecPolicy{Version: 2, Body: []byte("{}")}), store.ErrMoved)
	read("refused with the policy", asked)
	is(t, db.PutApproval(ctx, yes, "used", &store.ExecPolicy{Version: 1, Body: []byte("{}")}), store.ErrMoved)
	policy("refused with the answer", 0, "")
	first := `{"agents":{"a":{"ask":"off"},"b":{"ask":"always"}}}`
	ok(t, db.PutApproval(ctx, yes, "pending", &store.ExecPolicy{Version: 1, Body: []byte(first)}))
	read("answered", yes)
	policy("answered", 1, first)

	is(t, db.PutExecPolicy(ctx, store.ExecPolicy{Version: 1, Body: []byte("{}")}), store.ErrMoved)
	is(t, db.PutExecPolicy(ctx, store.ExecPolicy{Version: 3, Body: []byte("{}")}), store.ErrMoved)
	ok(t, db.PutExecPolicy(ctx, store.ExecPolicy{Version: 2, Body: []byte(first)}))
	policy("changed", 2, first)

	// An agent of the same name that is made later has none of its rules.
	ok(t, forget("a"))
	if _, there, err := db.Approval(ctx, "1", "", ""); there || err != nil {
		t.Errorf("the question of a removed agent: %v, %v", there, err)
	}
	p, err := db.ExecPolicy(ctx)
	ok(t, err)
	if p.Version != 3 {
		t.Errorf("version %d after a removal", p.Version)
	}
	var left bytes.Buffer
	ok(t, json.Compact(&left, p.Body))
	equal(t, "after a removal", left.String(), `{"agents":{"b":{"ask":"always"}}}`)
}
