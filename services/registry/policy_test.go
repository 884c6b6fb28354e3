package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const approved = registryv1.ApprovalState_APPROVAL_STATE_APPROVED

// decide answers a question.
func decide(w *backendtest.World, id string, d registryv1.ApprovalDecision, by string) error {
	_, err := w.Approvals.ResolveApproval(w.Context(), &registryv1.ResolveApprovalRequest{ApprovalId: id, Decision: d, By: by})
	return err
}

const (
	once   = registryv1.ApprovalDecision_APPROVAL_DECISION_ONCE
	always = registryv1.ApprovalDecision_APPROVAL_DECISION_ALWAYS
	deny   = registryv1.ApprovalDecision_APPROVAL_DECISION_DENY
)

// git is a question that can be answered with always.
func git(key string) *registryv1.RequestApprovalRequest {
	q := backendtest.Question(key, "git push", 0)
	q.Kind, q.Tool, q.Summary = registryv1.ApprovalKind_APPROVAL_KIND_EXEC, "exec", "git push origin"
	q.Patterns = []*registryv1.ExecEntry{{Pattern: "/usr/bin/git", Args: []string{"push"}}}
	return q
}

// outside lets the commands of an agent leave the sandbox, as the lists say.
func outside(w *backendtest.World, agent string) {
	w.Config(agent, "sandbox.mode", "off")
	w.Config(agent, "tools.exec.security", "allowlist")
	w.Config(agent, "tools.exec.ask", "on-miss")
}

// S2-15: once, always, deny; who answered is kept; always changes the policy with its answer, and
// what a turn that begins gets.
func TestDecisions(t *testing.T) { backendtest.Each(t, testDecisions) }

func testDecisions(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	outside(w, "a1")
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	plain := w.Ask(ctx, backendtest.Question("k0", "sh -c ls", 0))
	if err := decide(w, plain.GetApprovalId(), always, ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("always of what cannot be allowed in advance: %v", err)
	}
	for _, c := range []struct {
		d     registryv1.ApprovalDecision
		by    string
		state registryv1.ApprovalState
	}{{once, "", used}, {deny, "telegram:42", denied}, {always, "", used}} {
		key := fmt.Sprint("k", c.d)
		a := w.Ask(ctx, git(key))
		if a.GetState() != pending || a.GetSummary() != "git push origin" || a.GetTool() != "exec" || len(a.GetPatterns()) != 1 || a.GetDecision() != 0 {
			t.Errorf("asked %v", a)
		}
		if err := decide(w, a.GetApprovalId(), c.d, c.by); err != nil {
			t.Fatal(err)
		}
		got := w.Ask(ctx, git(key))
		if got.GetState() != c.state || got.GetDecision() != c.d || got.GetBy() != map[string]string{"": "owner", "telegram:42": "telegram:42"}[c.by] {
			t.Errorf("%v by %q: %v", c.d, c.by, got)
		}
		if err := decide(w, a.GetApprovalId(), once, ""); !fault.Is(err, fault.ApprovalClosed) || !strings.Contains(err.Error(), " by "+got.GetBy()+" at 2") {
			t.Errorf("answered again: %v", err)
		}
		p, err := w.Approvals.GetExecPolicy(t.Context(), &registryv1.GetExecPolicyRequest{})
		want := int64(0)
		if c.d == always {
			want = 1
		}
		if backendtest.Must(t, p, err).GetVersion() != want || strings.Contains(p.GetJson(), `"/usr/bin/git"`) != (want == 1) {
			t.Errorf("%v: policy %v", c.d, p)
		}
	}
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	e := backendtest.Must(t, b, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
	got := backendtest.Must(t, begun, err).GetConfig().GetExec()
	if got.GetSecurity() != "allowlist" || got.GetAsk() != "on-miss" || len(got.GetAllowlist()) != 1 || got.GetAllowlist()[0].GetPattern() != "/usr/bin/git" {
		t.Errorf("a turn gets %v", got)
	}
}

// The policy of the installation is replaced by version, bounds the settings, and forgets a removed
// agent; one that is wrong is refused.
func TestExecPolicy(t *testing.T) { backendtest.Each(t, testExecPolicy) }

func testExecPolicy(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	outside(w, "a1")
	set := func(json string, version int64) error {
		_, err := w.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: json, Version: version})
		return err
	}
	if err := set(`{"version":1,"defaults":{"security":"some"}}`, 0); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a wrong one: %v", err)
	}
	if err := set(`{"version":1}`, 1); !fault.Is(err, fault.VersionConflict) || status.Code(err) != codes.Aborted {
		t.Errorf("a version that is not there: %v", err)
	}
	if err := set(`{"version":1,"defaults":{"security":"full","ask":"off"},"agents":{"a1":{"ask":"always","allowlist":[{"pattern":"/usr/bin/ls"}]}}}`, 0); err != nil {
		t.Fatal(err)
	}
	if err := set(`{"version":1}`, 0); !fault.Is(err, fault.VersionConflict) {
		t.Errorf("written over another: %v", err)
	}
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	e := backendtest.Must(t, b, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
	got := backendtest.Must(t, begun, err).GetConfig().GetExec()
	if !begun.GetConfig().GetAskApproval() {
		t.Error("a runner that does not know the policy asks for nothing")
	}
	if got.GetSecurity() != "allowlist" || got.GetAsk() != "always" || got.GetAskFallback() != "deny" || len(got.GetAllowlist()) != 1 || len(got.GetSafeBins()) == 0 {
		t.Errorf("bound: %v", got)
	}
}

// The last use of an entry is recorded once an hour, however often a command uses it.
func TestLastUse(t *testing.T) { backendtest.Each(t, testLastUse) }

func testLastUse(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	if _, err := w.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: `{"version":1,"agents":{"a1":{"allowlist":[{"pattern":"/usr/bin/ls"},{"pattern":"/usr/bin/git","args":["push"]}]}}}`}); err != nil {
		t.Fatal(err)
	}
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	e := backendtest.Must(t, b, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
	backendtest.Must(t, begun, err)
	for n := range 5 {
		out, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: e.GetThreadId(), Key: e.GetKey(), Steps: []*registryv1.Step{{
			Seq: int32(n + 1), Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: fmt.Sprint("tool:1:", n+1), State: registryv1.StepState_STEP_STATE_DONE, Class: registryv1.ToolClass_TOOL_CLASS_EFFECT,
			Name: "bash_exec", Arguments: "{}", Result: []byte("{}"),
			ExecUse: &registryv1.ExecUse{Command: fmt.Sprint("git push ", n), Entries: []*registryv1.ExecEntry{{Pattern: "/usr/bin/git", Args: []string{"push"}}}},
		}}})
		backendtest.Must(t, out, err)
	}
	p, err := w.Approvals.GetExecPolicy(t.Context(), &registryv1.GetExecPolicyRequest{})
	if backendtest.Must(t, p, err).GetVersion() != 2 || strings.Count(p.GetJson(), "lastUsedAt") != 1 || !strings.Contains(p.GetJson(), "git push 0") {
		t.Errorf("after five uses: version %d, %s", p.GetVersion(), p.GetJson())
	}
}

// Settings that are narrowed during the wait count when the approval is used: deny wins.
func TestDenyWins(t *testing.T) { backendtest.Each(t, testDenyWins) }

func testDenyWins(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	outside(w, "a1")
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	a := w.Ask(ctx, git("k1"))
	if err := decide(w, a.GetApprovalId(), once, ""); err != nil {
		t.Fatal(err)
	}
	w.Config("a1", "tools.exec.security", "deny")
	if got := w.Ask(ctx, git("k1")); got.GetState() != denied || got.GetBy() == "owner" {
		t.Errorf("used under deny: %v", got)
	}
}

// S2-15: without an answer the fallback of the policy decides, once; an answer that was not used in
// its time is not the same.
func TestFallback(t *testing.T) { backendtest.Each(t, testFallback) }

func testFallback(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{ApprovalLife: 200 * time.Millisecond})
	w.Create("a1")
	w.Push("a1", "bob", "hi", "")
	ctx := w.Leased("a1", "r1")
	q := git("k1")
	q.Fallback, q.Wait = true, backendtest.DurationOf(30*time.Second)
	a := w.Ask(ctx, q)
	for a.GetState() == pending {
		a = w.Ask(ctx, q)
	}
	if a.GetState() != used || a.GetDecision() != 0 || a.GetBy() != "" {
		t.Errorf("with a fallback: %v", a)
	}
	if a := w.Unanswered(ctx, git("k2")); a.GetState() != expired {
		t.Errorf("without one: %v", a)
	}
}

// S2-15, SECURITY S5: a wait outlives 20 restarts of the registry, with one id and no crash counted;
// so does a yes (TA2), which is used once; a call whose approval is used has begun (TA3).
func TestWaitsOutliveRestarts(t *testing.T) { backendtest.Each(t, testWaitsOutliveRestarts) }

func testWaitsOutliveRestarts(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	outside(w, "a1")
	id := w.Push("a1", "bob", "hi", "").GetEventIds()[0]
	var key, thread, question string
	intent := &registryv1.Step{
		Seq: 2, Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: "tool:1:1", State: registryv1.StepState_STEP_STATE_INTENT,
		Class: registryv1.ToolClass_TOOL_CLASS_EFFECT, Name: "bash_exec", Arguments: `{"command":"git push"}`, Asks: true,
	}
	for n := range 22 {
		ctx := w.Leased("a1", fmt.Sprint("r", n))
		if key == "" {
			b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
			e := backendtest.Must(t, b, err).GetEvents()[0]
			key, thread = e.GetKey(), e.GetThreadId()
		}
		r, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: id, Key: key, ThreadId: thread})
		begun := backendtest.Must(t, r, err)
		if begun.GetOutcome() != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO || begun.GetCrashAttempts() > 1 {
			t.Fatalf("claim %d: %v after %d crashes", n, begun.GetOutcome(), begun.GetCrashAttempts())
		}
		if n == 0 { // TA1 and before it: the intent alone
			out, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: thread, Key: key, Steps: []*registryv1.Step{intent}})
			backendtest.Must(t, out, err)
		} else if st := begun.GetSteps()[0]; !st.GetAsks() || st.GetNotBegun() != (n <= 20) {
			t.Errorf("claim %d: asks %t, not begun %t", n, st.GetAsks(), st.GetNotBegun())
		}
		waits, err := w.Turns.RecordStep(ctx, &registryv1.RecordStepRequest{AgentId: "a1", ThreadId: thread, Key: key, Waits: true})
		backendtest.Must(t, waits, err)
		got, err := w.Approvals.RequestApproval(ctx, git(key+":tool:1:1"))
		switch {
		case n < 20:
			a := backendtest.Must(t, got, err).GetApproval()
			if question == "" {
				question = a.GetApprovalId()
			}
			if a.GetState() != pending || a.GetApprovalId() != question {
				t.Errorf("claim %d: %v, want %s", n, a, question)
			}
			if n == 19 {
				if err := decide(w, question, once, ""); err != nil {
					t.Fatal(err)
				}
				list, err := w.Approvals.ListApprovals(t.Context(), &registryv1.ListApprovalsRequest{State: approved})
				if left := time.Until(backendtest.Must(t, list, err).GetApprovals()[0].GetExpiresAt().AsTime()); left < 9*time.Minute || left > 10*time.Minute {
					t.Errorf("it can be used for %v", left)
				}
			}
		case n == 20:
			if a := backendtest.Must(t, got, err).GetApproval(); a.GetState() != used || a.GetApprovalId() != question {
				t.Errorf("after the answer: %v", a)
			}
			for what, q := range map[string]*registryv1.RequestApprovalRequest{"other words": backendtest.Question(key+":tool:1:1", "git push --force", 0)} {
				if _, err := w.Approvals.RequestApproval(ctx, q); status.Code(err) != codes.InvalidArgument {
					t.Errorf("replayed with %s: %v", what, err)
				}
			}
		default:
			if !fault.Is(err, fault.ApprovalClosed) {
				t.Errorf("used again: %v, %v", got, err)
			}
		}
		w.Release(w.Held("agent/a1"))
		w.Stop()
		w = o.Start(t, registry.Config{})
	}
}
