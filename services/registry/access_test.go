package registry_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/audit"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S2-103: a peer that has used its quota reads when to come again, no other peer notices,
// and a repeat of what was stored costs nothing.
func TestQuotaOfAPeer(t *testing.T) { backendtest.Each(t, testQuotaOfAPeer) }

func testQuotaOfAPeer(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Config("a1", "quota.peer_messages_per_day", "3")
	w.Push("a1", "bob", "1", "k1")
	for range 5 {
		if !w.Push("a1", "bob", "1", "k1").GetDuplicate() {
			t.Error("a repeat is not one")
		}
	}
	w.Push("a1", "bob", "2", "k2")
	w.Push("a1", "bob", "3", "k3")
	_, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a1", "bob", "4", "k4"))
	if status.Code(err) != codes.ResourceExhausted || !fault.Is(err, fault.QuotaExceeded) ||
		!slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
			r, ok := d.(*errdetails.RetryInfo)
			return ok && r.GetRetryDelay().AsDuration() > 0
		}) {
		t.Errorf("the fourth: %v %v", err, status.Convert(err).Details())
	}
	w.Push("a1", "carol", "1", "")
	w.Config("a1", "quota.peer_messages_per_day", "4")
	w.Push("a1", "bob", "4", "k4")
}

// S6, and the record of SECURITY: changes are on record before they happen, with
// what came of them; a refusal names the reason; no secret is in it; the chain holds.
func TestChangesAreOnRecord(t *testing.T) { backendtest.Each(t, testChangesAreOnRecord) }

func testChangesAreOnRecord(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Config("a1", "run.timeout", "5m")
	if _, err := w.Agents.SetAgentConfig(t.Context(), &registryv1.SetAgentConfigRequest{AgentId: "a1", Key: "run.timeout", Value: "never"}); err == nil {
		t.Error("a wrong value was taken")
	}
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	w.Stop()
	var got []string
	if err := audit.Read(filepath.Join(o.Home, "audit"), func(e audit.Entry) error {
		got = append(got, strings.Join([]string{e.Actor, e.Action, e.Agent, e.Outcome, e.Detail}, " "))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		" begin  allowed the first entry", "owner CreateAgent a1 allowed ", "owner StartAgent a1 allowed ",
		"owner SetAgentConfig a1 allowed run.timeout: 5m", "owner SetAgentConfig a1 allowed run.timeout: never",
		"owner SetAgentConfig a1 failed ", "owner StopAgent a1 allowed ",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("entry %d is not %q; all of them:\n%s", i+1, want, strings.Join(got, "\n"))
		}
	}
	if r, err := audit.Verify(filepath.Join(o.Home, "audit"), ""); err != nil || r.Entries != int64(len(got)) {
		t.Errorf("%+v, %v", r, err)
	}
}
