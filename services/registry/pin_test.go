package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// pinWorld is a registry whose home has the MCP server github.
type pinWorld struct{ *backendtest.World }

func pinned(t *testing.T, o backendtest.Options) pinWorld {
	t.Helper()
	w := pinWorld{o.Start(t, registry.Config{})}
	w.Create("a1")
	w.value(`{command: [github-mcp-server]}`, "mcp", "servers", "github")
	return w
}

func (w pinWorld) value(value string, path ...string) *registryv1.SetHomeValueResponse {
	w.Helper()
	r, err := w.Homes.SetHomeValue(w.Context(), &registryv1.SetHomeValueRequest{Path: path, Value: value})
	return backendtest.Must(w.T, r, err)
}

// described is a tool whose description has a text.
func described(name, text string) *registryv1.ReportedTool {
	return &registryv1.ReportedTool{Name: name, Description: fmt.Sprintf(`{"description":%q,"name":%q}`, text, name), Class: "effect"}
}

// report is the report of the runner; states are the result by tool.
func (w pinWorld) report(tools ...*registryv1.ReportedTool) (states string) {
	w.Helper()
	r, err := w.As(rpc.Identity{Kind: rpc.Service, Name: "runner"}).Pins.ReportTools(w.Context(), &registryv1.ReportToolsRequest{Server: "github", Tools: tools})
	return stateText(backendtest.Must(w.T, r, err).GetPins())
}

func stateText(list []*registryv1.Pin) string {
	var out []string
	for _, p := range list {
		out = append(out, p.GetTool()+" "+strings.ToLower(strings.TrimPrefix(p.GetState().String(), "PIN_STATE_")))
	}
	return strings.Join(out, ", ")
}

func (w pinWorld) list() *registryv1.ListPinsResponse {
	w.Helper()
	r, err := w.Pins.ListPins(w.Context(), &registryv1.ListPinsRequest{Server: "github"})
	return backendtest.Must(w.T, r, err)
}

func (w pinWorld) resolve(approve bool, digest string, tools ...string) (string, error) {
	r, err := w.Pins.ResolvePins(w.Context(), &registryv1.ResolvePinsRequest{Server: "github", Tools: tools, Approve: approve, Digest: digest})
	return stateText(r.GetPins()), err
}

// decided is resolve of what is listed now.
func (w pinWorld) decided(want string, approve bool, tools ...string) {
	w.Helper()
	if got, err := w.resolve(approve, w.list().GetDigest(), tools...); got != want || err != nil {
		w.Errorf("approve %v %v: %q, want %q: %v", approve, tools, got, want, err)
	}
}

// turnPins is what a turn of the agent would have.
func (w pinWorld) turnPins() string {
	w.Helper()
	r, err := w.Turns.GetTurnConfig(w.Context(), &registryv1.GetTurnConfigRequest{AgentId: "a1"})
	for _, m := range backendtest.Must(w.T, r, err).GetConfig().GetMcp() {
		if m.GetName() == "github" {
			return m.GetPins()
		}
	}
	return "no server"
}

// S3-59: a tool waits for the owner when it is new and when it has changed; it is approved as it was shown.
func TestPinStates(t *testing.T) { backendtest.Each(t, testPinStates) }

func testPinStates(t *testing.T, o backendtest.Options) {
	metrics := prometheus.NewRegistry()
	o.Change = func(d *registry.Deps) { d.Metrics = obs.NewRegistryMetrics(metrics) }
	w := pinned(t, o)
	counted := func(want string) {
		t.Helper()
		if got := gauges(t, metrics, "theclaw_registry_pins"); got != want {
			t.Errorf("counted %q, want %q", got, want)
		}
	}
	report := func(want string, tools ...*registryv1.ReportedTool) {
		t.Helper()
		for range 2 { // the second report changes nothing
			if got := w.report(tools...); got != want {
				t.Errorf("reported %q, want %q", got, want)
			}
		}
	}
	report("")
	report("a new, b new", described("b", "1"), described("a", "1"))
	if got := w.turnPins(); got != "" {
		t.Errorf("before an approval a turn has the pins %q", got)
	}
	w.decided("a approved, b new", true, "a")
	first := w.turnPins()
	if first == "" {
		t.Error("after an approval a turn has no pins")
	}
	w.decided("a approved, b approved", true)
	if got := w.turnPins(); got == first || got == "" {
		t.Errorf("after two approvals a turn has the pins %q", got)
	}
	w.decided("a approved, b approved", true, "a", "b")
	p := w.list().GetPins()[1]
	if p.GetApproved() != described("b", "1").GetDescription() || p.GetReported() != p.GetApproved() || p.GetBy() != "owner" || time.Since(p.GetAt().AsTime()) > time.Minute {
		t.Errorf("approved %v", p)
	}
	report("a approved, b changed", described("a", "1"), described("b", "2"))
	counted("approved 1, changed 1")
	if got := w.turnPins(); got != first {
		t.Errorf("with a change a turn has the pins %q, want %q", got, first)
	}
	report("a approved, b approved", described("a", "1"), described("b", "1"))
	report("a approved, b gone, c new", described("a", "1"), described("c", "1"))
	counted("approved 1, gone 1, new 1")
	w.decided("a approved, b gone, c denied", false, "c")
	report("a approved, b gone, c new", described("a", "1"), described("c", "2"))
	report("a approved, b gone", described("a", "1"))
	w.decided("a approved", false, "b")
	w.decided("a denied", false, "a")
	if got := w.turnPins(); got != "" {
		t.Errorf("after a denial a turn has the pins %q", got)
	}
	w.decided("a approved", true, "a")
	report("a gone")

	w.Stop()
	metrics = prometheus.NewRegistry()
	w.World = o.Start(t, registry.Config{})
	if got := stateText(w.list().GetPins()); got != "a gone" {
		t.Errorf("after a restart: %q", got)
	}
	counted("gone 1")
	w.value("", "mcp", "servers", "github")
	counted("")
}

// gauges are the values of a metric with one label, without those that are 0.
func gauges(t *testing.T, r prometheus.Gatherer, name string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetGauge().GetValue() > 0 {
				out = append(out, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetGauge().GetValue()))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// S3-59: a server changes its tools while the owner looks at them: nothing is approved. An answer that was lost
// may be repeated.
func TestPinsAreApprovedAsShown(t *testing.T) { backendtest.Each(t, testPinsAreApprovedAsShown) }

func testPinsAreApprovedAsShown(t *testing.T, o backendtest.Options) {
	w := pinned(t, o)
	w.report(described("a", "1"))
	shown := w.list().GetDigest()
	w.report(described("a", "evil"))
	if _, err := w.resolve(true, shown); !fault.Is(err, fault.McpPinChanged) || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("approved what was not shown: %v", err)
	}
	if got := stateText(w.list().GetPins()); got != "a new" {
		t.Errorf("after a refusal: %s", got)
	}
	w.report(described("a", "1"))
	for range 2 {
		if got, err := w.resolve(true, shown, "a"); got != "a approved" || err != nil {
			t.Errorf("approved: %s %v", got, err)
		}
	}
	class := described("a", "1")
	class.Class = "read"
	w.report(class)
	if _, err := w.resolve(true, shown); !fault.Is(err, fault.McpPinChanged) {
		t.Errorf("with another class: %v", err)
	}
}

// What is refused, and what to do instead.
func TestPinRefusals(t *testing.T) { backendtest.Each(t, testPinRefusals) }

func testPinRefusals(t *testing.T, o backendtest.Options) {
	w := pinned(t, o)
	w.report(described("list_issues", "1"))
	digest := w.list().GetDigest()
	ctx, runner := t.Context(), w.As(rpc.Identity{Kind: rpc.Service, Name: "runner"})
	reported := func(tools ...*registryv1.ReportedTool) error {
		_, err := runner.Pins.ReportTools(ctx, &registryv1.ReportToolsRequest{Server: "github", Tools: tools})
		return err
	}
	large := func(n int) (list []*registryv1.ReportedTool) {
		for i := range n {
			list = append(list, described(fmt.Sprint("t", i), strings.Repeat("x", 60<<10)))
		}
		return list
	}
	_, noServer := w.Pins.ListPins(ctx, &registryv1.ListPinsRequest{Server: "gitub"})
	_, noReport := runner.Pins.ReportTools(ctx, &registryv1.ReportToolsRequest{Server: "other"})
	_, noResolve := w.Pins.ResolvePins(ctx, &registryv1.ResolvePinsRequest{Server: "other", Digest: digest})
	_, byRunner := runner.Pins.ResolvePins(ctx, &registryv1.ResolvePinsRequest{Server: "github", Digest: digest, Approve: true})
	_, byDeliverer := w.As(rpc.Identity{Kind: rpc.Service, Name: "deliverer"}).Pins.ListPins(ctx, &registryv1.ListPinsRequest{})
	_, noTool := w.resolve(true, digest, "list_issue")
	many := slices.Repeat([]*registryv1.ReportedTool{described("a", "1")}, 513)
	for _, c := range []struct {
		name   string
		err    error
		code   codes.Code
		reason string
		fix    string
	}{
		{"list", noServer, codes.NotFound, fault.McpServerNotFound, "did you mean github?"},
		{"report", noReport, codes.NotFound, fault.McpServerNotFound, "agentctl mcp list"},
		{"resolve", noResolve, codes.NotFound, fault.McpServerNotFound, ""},
		{"the runner resolves", byRunner, codes.PermissionDenied, fault.PermissionDenied, ""},
		{"the deliverer lists", byDeliverer, codes.PermissionDenied, fault.PermissionDenied, ""},
		{"tool", noTool, codes.NotFound, fault.ToolNotFound, "did you mean list_issues?"},
		{"two of one name", reported(described("a", "1"), described("a", "2")), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"no object", reported(&registryv1.ReportedTool{Name: "a", Description: "[]", Class: "read"}), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"null", reported(&registryv1.ReportedTool{Name: "a", Description: "null", Class: "read"}), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"control characters", reported(described("a\x00", "1")), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"class", reported(&registryv1.ReportedTool{Name: "a", Description: "{}", Class: "write"}), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"too large together", reported(large(18)...), codes.InvalidArgument, fault.InvalidArgument, ""},
		{"too many", reported(many...), codes.InvalidArgument, fault.InvalidArgument, ""},
	} {
		f := fault.From(c.err)
		if c.err == nil || status.Code(c.err) != c.code || f.Reason != c.reason || !strings.Contains(f.Fix, c.fix) {
			t.Errorf("%s: %v %+v", c.name, c.err, f)
		}
	}
	if got := stateText(w.list().GetPins()); got != "list_issues new" {
		t.Errorf("after refusals: %s", got)
	}
	if err := reported(large(17)...); err != nil {
		t.Errorf("a large report: %v", err)
	}
}

// A server that approves many descriptions over time keeps only as many of them as one response carries.
func TestGonePinsAreBounded(t *testing.T) { backendtest.Each(t, testGonePinsAreBounded) }

func testGonePinsAreBounded(t *testing.T, o backendtest.Options) {
	w := pinned(t, o)
	tools := func(round, n, size int) (list []*registryv1.ReportedTool) {
		for i := range n {
			list = append(list, described(fmt.Sprintf("r%d-%03d", round, i), strings.Repeat("x", size)))
		}
		return list
	}
	for round := range 2 {
		w.report(tools(round, 300, 1)...)
		if _, err := w.resolve(true, w.list().GetDigest()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.list().GetPins()); n != 512 {
		t.Errorf("%d tools are kept, want 512", n)
	}
	for round := range 3 {
		w.report(tools(10+round, 12, 60<<10)...)
		if _, err := w.resolve(true, w.list().GetDigest()); err != nil {
			t.Fatal(err)
		}
	}
	size := 0
	for _, p := range w.list().GetPins() {
		size += len(p.GetApproved())
	}
	if size > 1<<20 {
		t.Errorf("approved descriptions have %d bytes", size)
	}
}

// The approvals of a server go with it: one that is added later under its name has none.
func TestPinsOfARemovedServer(t *testing.T) { backendtest.Each(t, testPinsOfARemovedServer) }

func testPinsOfARemovedServer(t *testing.T, o backendtest.Options) {
	w := pinned(t, o)
	w.report(described("a", "1"))
	w.decided("a approved", true)
	w.value("{command: [other]}", "mcp", "servers", "other")
	if got := stateText(w.list().GetPins()); got != "a approved" {
		t.Errorf("with another server: %s", got)
	}
	if r := w.value("", "mcp", "servers", "github"); !r.GetExisted() {
		t.Error("the server was not there")
	}
	if r, err := w.Pins.ListPins(t.Context(), &registryv1.ListPinsRequest{}); err != nil || len(r.GetPins()) != 0 {
		t.Errorf("tools of removed servers: %v %v", r, err)
	}
	if got := w.turnPins(); got != "no server" {
		t.Errorf("a turn has the server: %q", got)
	}
	if r := w.value("", "mcp", "servers", "github"); r.GetExisted() {
		t.Error("the server was there")
	}
	w.value("{command: [evil]}", "mcp", "servers", "github")
	if got := w.report(described("a", "1")); got != "a new" {
		t.Errorf("of the next server: %s", got)
	}
}

// A turn has the servers of the home with what is approved.
func TestTurnHasPins(t *testing.T) { backendtest.Each(t, testTurnHasPins) }

func testTurnHasPins(t *testing.T, o backendtest.Options) {
	w := pinned(t, o)
	w.report(described("a", "1"))
	w.decided("a approved", true)
	id := w.Push("a1", "bob", "hi", "").GetEventIds()[0]
	ctx := w.Leased("a1", "r1")
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	p := backendtest.Must(t, b, err).GetEvents()[0]
	begun, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: id, Key: p.GetKey(), ThreadId: p.GetThreadId()})
	list := backendtest.Must(t, begun, err).GetConfig().GetMcp()
	if len(list) != 1 || list[0].GetName() != "github" || list[0].GetPins() == "" || list[0].GetPins() != w.turnPins() || list[0].GetTimeout().AsDuration() != 30*time.Second {
		t.Errorf("the servers of a turn: %v", list)
	}
}

// One key of the settings is set and removed; the rest of the file stays as it was, and what is wrong changes
// nothing.
func TestSetHomeValue(t *testing.T) { backendtest.Each(t, testSetHomeValue) }

func testSetHomeValue(t *testing.T, o backendtest.Options) {
	w := pinWorld{o.Start(t, registry.Config{})}
	text := func(want string) {
		t.Helper()
		r, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
		if got := backendtest.Must(t, r, err).GetText(); got != want {
			t.Errorf("the settings are\n%s\nwant\n%s", got, want)
		}
	}
	r := w.value("{command: [x]}", "mcp", "servers", "x")
	if r.GetExisted() || r.GetVersion() == "" {
		t.Errorf("the first key: %v", r)
	}
	text("mcp:\n  servers:\n    x: {command: [x]}\n")
	w.value("5m", "run", "timeout")
	if r := w.value("{command: [y]}", "mcp", "servers", "x"); !r.GetExisted() {
		t.Errorf("a key that is there: %v", r)
	}
	const now = "mcp:\n  servers:\n    x: {command: [y]}\nrun:\n  timeout: 5m\n"
	text(now)
	for value, want := range map[string]string{
		"{command: [], timeout: 5s}":         "must be a list of 1 to 64 words",
		"{command: [x]\n}":                   "must be one line of YAML",
		"{command: [x]":                      "cannot be changed without touching the lines around it",
		"{command: [x]}\u00a0# {":            "mcp.servers.x",
		"{command: [x], timeout: 11m}":       "is not between 1s and 10m",
		"{command: [x]} # a comment\r\na: b": "must be one line of YAML",
	} {
		_, err := w.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"mcp", "servers", "x"}, Value: value})
		if !fault.Is(err, fault.ConfigInvalid) || status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
	_, err := w.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"no such"}, Value: "1"})
	if !fault.Is(err, fault.ConfigInvalid) {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := w.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Value: "1"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no key: %v", err)
	}
	text(now)
	w.value("", "mcp", "servers", "x")
	text("run:\n  timeout: 5m\n")
	w.value("", "run", "timeout")
	text("# There are no settings.\n")
	if r := w.value("", "run", "timeout"); r.GetExisted() {
		t.Errorf("a key that is not there: %v", r)
	}
	runner := w.As(rpc.Identity{Kind: rpc.Service, Name: "runner"})
	if _, err := runner.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"run", "timeout"}, Value: "1m"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("by the runner: %v", err)
	}
}
