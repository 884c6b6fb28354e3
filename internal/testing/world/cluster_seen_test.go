package world_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What is said of an agent at one registry is read at the other, as one machine keeps it
// in agent.log; nobody is told of a file that is none.
func TestLogAcrossRegistries(t *testing.T) {
	w := cluster(t, world.Options{Runners: 1})
	w.Create(t, "one", "")
	w.Say(t, "one", world.Peer("bob"), "hello")
	// What was said at the other registry is written soon after.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		r, err := w.At[1].Agents.ReadAgentLog(t.Context(), &registryv1.ReadAgentLogRequest{AgentId: "one"})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.GetLines()); n > 0 && strings.Contains(strings.Join(r.GetLines(), "\n"), "outbound:") {
			break
		}
	}
	if _, err := w.At[1].Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "one"}); err != nil {
		t.Fatal(err)
	}
	r, err := w.At[1].Agents.ReadAgentLog(t.Context(), &registryv1.ReadAgentLogRequest{AgentId: "one"})
	if err != nil {
		t.Fatal(err)
	}
	lines := r.GetLines()
	// A runner may have said more since.
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "[20") || !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "] [INFO] agent stopped") }) {
		t.Errorf("%q", lines)
	}
	if r, err = w.At[1].Agents.ReadAgentLog(t.Context(), &registryv1.ReadAgentLogRequest{AgentId: "one", Lines: 1}); err != nil || len(r.GetLines()) != 1 || slices.Contains(lines[:len(lines)-1], r.GetLines()[0]) {
		t.Errorf("%q, %v", r.GetLines(), err)
	}
	if _, err := w.At[1].Agents.ReadAgentLog(t.Context(), &registryv1.ReadAgentLogRequest{AgentId: "none"}); !fault.Is(err, fault.AgentNotFound) {
		t.Error(err)
	}
	st, err := w.At[1].Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "one"})
	if err != nil || st.GetInboxPath() != "" || st.GetAgent().GetDir() != "" {
		t.Errorf("%v, %v", st, err)
	}
}

// The rate between two agents is one, whichever registry is asked.
func TestPairAcrossRegistries(t *testing.T) {
	w := cluster(t, world.Options{Runners: 1})
	w.Create(t, "one", "quota:\n  pair_per_minute: 5\n")
	let, begun := 0, time.Now()
	for i := range 20 {
		_, err := w.At[i%2].Push(t.Context(), "one", "internal:other:c:1", "hello", "")
		switch {
		case err == nil:
			let++
		case !fault.Is(err, fault.QuotaExceeded):
			t.Fatal(err)
		}
	}
	if let < 5 || let > 6+int(time.Since(begun)/(12*time.Second)) { // and one for each 12 s that it took
		t.Errorf("%d of 5 were let", let)
	}
}
