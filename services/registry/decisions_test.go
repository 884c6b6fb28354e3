package registry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const execPolicy = `{"version":1,"agents":{"a1":{"security":"allowlist","allowlist":[{"id":"1","pattern":"/usr/bin/git","args":["<push>"]}]}}}`

// decidedHome is a home with an account, an MCP server and an agent, whose registry logs to a buffer.
type decidedHome struct {
	backendtest.Options
	pinWorld
	log *bytes.Buffer
}

func newDecidedHome(t *testing.T, o backendtest.Options) *decidedHome {
	t.Helper()
	h := &decidedHome{Options: o}
	h.Change = func(d *registry.Deps) {
		h.log = new(bytes.Buffer)
		d.Logger = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	h.start(t)
	h.Create("a1")
	setHome(t, h.Options, h.World, "agents: {list: [{id: a1}]}\nchannels:\n  wh: {type: webhook, dm: pairing}\n")
	h.value(`{command: [github-mcp-server]}`, "mcp", "servers", "github")
	return h
}

func (h *decidedHome) start(t *testing.T) {
	t.Helper()
	h.pinWorld = pinWorld{h.Start(t, registry.Config{})}
}

// restart starts the registry with an edge.jsonl and returns the log of the start.
func (h *decidedHome) restart(t *testing.T, edge []byte) string {
	t.Helper()
	h.Stop()
	if err := os.WriteFile(h.file(), edge, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	h.Stop() // the log is complete
	log := h.log.String()
	h.start(t)
	return log
}

func (h *decidedHome) file() string { return filepath.Join(h.Options.Home, "edge.jsonl") }

func (h *decidedHome) there() bool {
	_, err := os.Lstat(h.file())
	return err == nil
}

func (h *decidedHome) export(t *testing.T) []byte {
	t.Helper()
	r, err := h.Homes.ExportHome(t.Context(), &registryv1.ExportHomeRequest{})
	return backendtest.Must(t, r, err).GetRows()
}

func (h *decidedHome) policy(t *testing.T) *registryv1.GetExecPolicyResponse {
	t.Helper()
	r, err := h.Approvals.GetExecPolicy(t.Context(), &registryv1.GetExecPolicyRequest{})
	return backendtest.Must(t, r, err)
}

// stranger writes, and is decided about unless the decision is 0.
func (h *decidedHome) stranger(t *testing.T, peer string, d registryv1.PairingDecision, owner bool) {
	t.Helper()
	if m := accept(t, h.World, inbound("first of "+peer, peer, "hello")); m.GetOutcome() != paired {
		t.Fatalf("%s is no stranger: %v", peer, m)
	}
	if d == 0 {
		return
	}
	if _, err := resolve(t, h.World, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: peer, Decision: d, Owner: owner, ShareMain: true}); err != nil {
		t.Fatal(err)
	}
}

// outcomes is what becomes of a message of each person.
func (h *decidedHome) outcomes(t *testing.T, key string, peers ...string) (out []registryv1.AcceptOutcome) {
	t.Helper()
	for _, p := range peers {
		out = append(out, accept(t, h.World, inbound(key+p, p, "hello")).GetOutcome())
	}
	return out
}

// fresh is a home with another directory, and another database where there is one.
func fresh(t *testing.T, o backendtest.Options) *decidedHome {
	t.Helper()
	o.Home = filepath.Join(t.TempDir(), "other")
	if o.DSN != "" {
		o.DSN = pgtest.Database(t)
	}
	return newDecidedHome(t, o)
}

// S2-15, S3-59: what people decided for a home is exported and added to another one: who is approved, blocked and
// an owner, the policy for commands, and the tools of MCP servers that were approved or denied. What waits is not.
func TestDecisionsMove(t *testing.T) { backendtest.Each(t, testDecisionsMove) }

func testDecisionsMove(t *testing.T, o backendtest.Options) {
	from := newDecidedHome(t, o)
	if rows := from.export(t); len(rows) > 0 {
		t.Errorf("nothing was decided: %q", rows)
	}
	from.stranger(t, "ann", pairApprove, true)
	from.stranger(t, "bob", pairBlock, false)
	from.stranger(t, "carl", 0, false)
	from.stranger(t, "dan", pairDeny, false)
	if _, err := from.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: execPolicy}); err != nil {
		t.Fatal(err)
	}
	tools := []*registryv1.ReportedTool{described("a", "1"), described("b", "1"), described("c", "1")}
	from.report(tools...)
	from.decided("a approved, b new, c new", true, "a")
	from.decided("a approved, b denied, c new", false, "b")
	edge := from.export(t)
	if n := bytes.Count(edge, []byte("\n")); n != 5 || bytes.Contains(edge, []byte("carl")) || bytes.Contains(edge, []byte("dan")) || bytes.Contains(edge, []byte("description")) {
		t.Errorf("%d rows:\n%s", n, edge)
	}
	if _, err := from.As(rpc.Identity{Kind: rpc.Service, Name: "gateway"}).Homes.ExportHome(t.Context(), &registryv1.ExportHomeRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("for a gateway: %v", err)
	}

	to := fresh(t, o)
	for _, again := range []bool{false, true} { // the second time as after a kill before the file was removed
		if log := to.restart(t, edge); !strings.Contains(log, "people: 2, owners among them: 1, tools: 2, and the policy for commands") || to.there() {
			t.Errorf("again %v: there %v, log %s", again, to.there(), log)
		}
		if got := to.export(t); !bytes.Equal(got, edge) {
			t.Errorf("again %v:\n%s\nwant\n%s", again, got, edge)
		}
		if p := to.policy(t); p.GetVersion() != 1 || p.GetJson() != from.policy(t).GetJson() {
			t.Errorf("again %v: policy %v", again, p)
		}
	}
	if got := to.outcomes(t, "1", "ann", "bob", "carl"); !slices.Equal(got, []registryv1.AcceptOutcome{accepted, refused, paired}) {
		t.Errorf("outcomes %v", got)
	}
	if _, err := resolve(t, to.World, &registryv1.ResolvePairingRequest{Account: "wh", PeerId: "carl", Decision: pairBlock, By: "webhook:ann"}); err != nil {
		t.Errorf("the owner decides in a chat: %v", err)
	}
	// Without a report no tool is offered; the same descriptions are approved and denied without a question.
	if got := stateText(to.list().GetPins()); got != "a gone, b denied" || to.turnPins() != "" {
		t.Errorf("before a report: %q, a turn has %q", got, to.turnPins())
	}
	if got := to.report(tools...); got != "a approved, b denied, c new" {
		t.Errorf("reported %q", got)
	}
	if p := to.list().GetPins()[0]; p.GetApproved() != tools[0].GetDescription() || p.GetBy() != "owner" || to.turnPins() != from.turnPins() {
		t.Errorf("approved %v, a turn has %q", p, to.turnPins())
	}
	to.decided("a approved, b approved, c new", true, "b")
}

// What the home has decided stays, and a person who only waits is decided about.
func TestDecisionsStay(t *testing.T) { backendtest.Each(t, testDecisionsStay) }

func testDecisionsStay(t *testing.T, o backendtest.Options) {
	from := newDecidedHome(t, o)
	from.stranger(t, "ann", pairApprove, false)
	from.stranger(t, "bob", pairApprove, false)
	if _, err := from.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: execPolicy}); err != nil {
		t.Fatal(err)
	}
	from.report(described("a", "1"), described("b", "1"))
	from.decided("a approved, b approved", true)

	to := fresh(t, o)
	to.stranger(t, "ann", pairBlock, false)
	to.stranger(t, "bob", 0, false)
	for range 2 {
		p := to.policy(t)
		if _, err := to.Approvals.SetExecPolicy(t.Context(), &registryv1.SetExecPolicyRequest{Json: `{"version":1}`, Version: p.GetVersion()}); err != nil {
			t.Fatal(err)
		}
	}
	before := to.policy(t)
	to.report(described("a", "1"), described("b", "1"))
	to.decided("a denied, b new", false, "a")
	to.restart(t, from.export(t))
	if got := to.outcomes(t, "1", "ann", "bob"); !slices.Equal(got, []registryv1.AcceptOutcome{refused, accepted}) {
		t.Errorf("outcomes %v", got)
	}
	if now := to.policy(t); now.GetVersion() != 2 || now.GetJson() != before.GetJson() {
		t.Errorf("policy %v", now)
	}
	// The tool about which nothing was decided is approved as it was reported.
	if pins := to.list().GetPins(); stateText(pins) != "a denied, b approved" || pins[1].GetApproved() != described("b", "1").GetDescription() {
		t.Errorf("pins %v", pins)
	}
}

// A file that cannot be used changes nothing, is named in the log with what to do, stays, and prevents no start; rows of
// kinds that are not known are skipped.
func TestDecisionsDamaged(t *testing.T) { backendtest.Each(t, testDecisionsDamaged) }

func testDecisionsDamaged(t *testing.T, o backendtest.Options) {
	h := newDecidedHome(t, o)
	const ann = `{"kind":"pairing","account":"wh","peer":"ann","type":"webhook","state":"approved","by":"owner","at":"2026-01-02T03:04:05Z"}` + "\n"
	sum := strings.Repeat("0a", 32)
	for what, row := range map[string]string{
		"cut":                   ann[:len(ann)/2],
		"no JSON":               "approved",
		"invalid UTF-8":         strings.Replace(ann, "ann", "ann\xff", 1),
		"two values":            strings.TrimSpace(ann) + "{}",
		"an unknown field":      strings.Replace(ann, `"by"`, `"buy"`, 1),
		"a code":                strings.Replace(ann, "approved", "pending", 1),
		"a blocked owner":       strings.Replace(ann, `"approved"`, `"blocked","owner":true`, 1),
		"a long name":           strings.Replace(ann, `"ann"`, `"`+strings.Repeat("a", 513)+`"`, 1),
		"a policy of no rules":  `{"kind":"exec_policy","policy":{"version":9}}`,
		"two policies":          strings.Repeat(`{"kind":"exec_policy","policy":{"version":1}}`+"\n", 2),
		"a tool without a sum":  `{"kind":"mcp_pin","server":"github","tool":"a","class":"read","at":"2026-01-02T03:04:05Z"}`,
		"a tool with a bad sum": `{"kind":"mcp_pin","server":"github","tool":"a","approved_sha":"0A","class":"read","at":"2026-01-02T03:04:05Z"}`,
		"a tool of no class":    fmt.Sprintf(`{"kind":"mcp_pin","server":"github","tool":"a","denied_sha":%q,"class":"any","at":"2026-01-02T03:04:05Z"}`, sum),
		"too large":             strings.Repeat(" ", 1<<20) + "\n",
	} {
		log := h.restart(t, []byte(ann+row))
		if !h.there() || !strings.Contains(log, "wait for the next start") || !strings.Contains(log, "fix=") || what != "too large" && !strings.Contains(log, "line ") {
			t.Errorf("%s: there %v, log %s", what, h.there(), log)
		}
		if rows := h.export(t); len(rows) > 0 {
			t.Errorf("%s: added %s", what, rows)
		}
	}
	log := h.restart(t, []byte(`{"kind":"moon","phase":1}`+"\n\n"+ann+`{"kind":"\u001b[2J"}`))
	if h.there() || !strings.Contains(log, `moon, \"\\x1b[2J\"`) {
		t.Errorf("unknown kinds: there %v, log %s", h.there(), log)
	}
	if rows := h.export(t); string(rows) != ann {
		t.Errorf("added %s", rows)
	}
}

// A file may be as large as a backup takes it; a home that has more is not exported in part.
func TestDecisionsTooMany(t *testing.T) { backendtest.Each(t, testDecisionsTooMany) }

func testDecisionsTooMany(t *testing.T, o backendtest.Options) {
	h := newDecidedHome(t, o)
	for _, part := range []string{"a", "b"} {
		var edge []byte
		for n := 0; ; n++ {
			row := fmt.Appendf(nil, `{"kind":"pairing","account":"wh","peer":"%s%0500d","type":"webhook","state":"approved","at":"2026-01-02T03:04:05Z"}`+"\n", part, n)
			if len(edge)+len(row) > 1<<20 {
				break
			}
			edge = append(edge, row...)
		}
		if log := h.restart(t, edge); h.there() {
			t.Fatalf("not added: %s", log)
		}
		if part == "a" {
			if got := h.export(t); !bytes.Equal(got, edge) {
				t.Errorf("%d bytes, want %d", len(got), len(edge))
			}
		}
	}
	if _, err := h.Homes.ExportHome(t.Context(), &registryv1.ExportHomeRequest{}); !fault.Is(err, fault.Overloaded) {
		t.Errorf("2 MiB: %v", err)
	}
}
