package runner_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

// mcpHome is a coder whose home has MCP servers.
type mcpHome struct {
	*coder
	pins registrypb.PinServiceClient
	root string // directories of the servers
}

// newMCP makes one; servers are the lines below mcp.servers, in which PROGRAM is this program.
func newMCP(t *testing.T, servers, settings string) *mcpHome {
	t.Helper()
	m := &mcpHome{root: t.TempDir()}
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := "mcp:\n  servers:\n" + strings.ReplaceAll(servers, "PROGRAM", self)
	if err := os.WriteFile(filepath.Join(w.home.Path(), "theclaw.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.agent("a1", "tools: {profile: full"+settings+"}\noutbound: []")
	m.coder = &coder{world: w, shop: w.runner(nil, func(c *runner.Config) { c.Servers = m.root })}
	m.pins = registrypb.NewPinServiceClient(w.conn)
	return m
}

func (m *mcpHome) start(name string) *runnerpb.Server {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	r, err := m.shop.StartServer(ctx, &runnerpb.StartServerRequest{AgentId: "a1", Server: name})
	if err != nil {
		m.t.Fatal(err)
	}
	return r.GetServer()
}

// listed are the pins of a server, by tool.
func (m *mcpHome) listed(name string) (pins map[string]*registrypb.Pin, digest string) {
	m.t.Helper()
	r, err := m.pins.ListPins(m.t.Context(), &registrypb.ListPinsRequest{Server: name})
	if err != nil {
		m.t.Fatal(err)
	}
	pins = map[string]*registrypb.Pin{}
	for _, p := range r.GetPins() {
		pins[p.GetTool()] = p
	}
	return pins, r.GetDigest()
}

// approve approves what a server has reported.
func (m *mcpHome) approve(name string) {
	m.t.Helper()
	_, digest := m.listed(name)
	if _, err := m.pins.ResolvePins(m.t.Context(), &registrypb.ResolvePinsRequest{Server: name, Approve: true, Digest: digest}); err != nil {
		m.t.Fatal(err)
	}
}

// tools are those that the agent is offered, of its servers.
func (m *mcpHome) tools() (names []string) {
	m.t.Helper()
	r, err := m.shop.ListTools(m.t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, tool := range r.GetTools() {
		if tool.GetServer() != "" && tool.GetDenied() == "" {
			names = append(names, tool.GetName())
		}
	}
	return names
}

// until waits for a condition on what the services answer.
func (m *mcpHome) until(what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatal("it does not come: " + what)
		}
	}
}

// file is one in the directory of a server.
func (m *mcpHome) at(server, name string) string { return filepath.Join(m.root, "a1", server, name) }

func (m *mcpHome) read(path string) string {
	b, _ := os.ReadFile(path) // none: empty
	return string(b)
}

const goodServer = "    good: {command: [PROGRAM], env: {MCPTEST: good}}\n"

var externalText = regexp.MustCompile(`\[external content from MCP server \w+ [0-9a-f]{16}\]\\n(.*)\\n\[end of external content`)

// S3-59: a server starts with its first use; nothing of it is offered before the owner has
// approved it; its tools come after ours, with the class of their hints, and their results are
// marked.
func TestMCPServer(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("hunter-22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMCP(t, "    good: {command: [PROGRAM], env: {MCPTEST: good, TOKEN: 'file:"+secret+"'}, tools: {deny: [fail]}, classes: {change: read}}\n", "")
	if text := m.call(`good__echo {"text":"hi"}`); !strings.Contains(text, "not offered") {
		t.Errorf("before it is approved: %s", text)
	}
	if s := m.start("good"); s.GetState() != runnerpb.ServerState_SERVER_STATE_UP || s.GetTools() != 10 || s.GetProtocol() == "" {
		t.Fatalf("started: %v", s)
	}
	pins, _ := m.listed("good")
	if p := pins["append"]; len(pins) != 10 || p.GetState() != registrypb.PinState_PIN_STATE_NEW || p.GetClass() != "effect" || pins["echo"].GetClass() != "read" || pins["change"].GetClass() != "read" {
		t.Fatalf("reported: %v", pins)
	}
	if tools := m.tools(); len(tools) != 0 {
		t.Errorf("offered before they are approved: %v", tools)
	}
	m.approve("good")
	if tools := m.tools(); len(tools) != 9 || !slices.IsSorted(tools) || tools[0] != "good__append" {
		t.Errorf("offered: %v", tools)
	}
	all, err := m.shop.ListTools(t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil || all.GetTools()[len(all.GetTools())-1].GetServer() != "good" || all.GetTools()[0].GetServer() != "" {
		t.Errorf("the order is %v, %v", all, err)
	}
	if text := m.call(`good__echo {"text":"hi"}`); externalText.FindStringSubmatch(text) == nil || externalText.FindStringSubmatch(text)[1] != "hi" {
		t.Errorf("echo: %s", text)
	}
	if text := m.call(`good__echo {"text":7}`); !strings.Contains(text, "text must be of type string") {
		t.Errorf("bad arguments: %s", text)
	}
	if text := m.call(`good__fail {"text":""}`); !strings.Contains(text, "not offered") {
		t.Errorf("a tool that the settings leave out: %s", text)
	}
	if text := m.call(`good__env {"text":"TOKEN"}`); strings.Contains(text, "hunter") || !strings.Contains(text, "{{secret:TOKEN}}") || !strings.Contains(text, "in good") {
		t.Errorf("env: %s", text)
	}
	if text := m.call(`good__env {"text":"PATH"}`); !strings.Contains(text, "/usr/bin") {
		t.Errorf("env: %s", text)
	}
	text := m.call(`good__kinds {"text":""}`)
	for _, want := range []string{"a text", "image/png of 5 bytes", "5 bytes is not shown: it is no png", `"images":[{"type":"image","mime":"image/png","name":"","size":`, "a link https://example.org/x", "embedded"} {
		if !strings.Contains(text, want) {
			t.Errorf("kinds: no %q in %s", want, text)
		}
	}
	r, err := m.shop.ListServers(t.Context(), &runnerpb.ListServersRequest{AgentId: "a1"})
	if err != nil || len(r.GetServers()) != 1 || r.GetServers()[0].GetState() != runnerpb.ServerState_SERVER_STATE_UP || r.GetServers()[0].GetCalls() < 4 {
		t.Errorf("servers: %v, %v", r, err)
	}
}

// A program below one of the paths of its server runs, and a start of a server that is up reports its tools again.
func TestMCPProgramInPaths(t *testing.T) {
	dir := t.TempDir()
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "server"), self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := newMCP(t, "    good: {command: ['"+dir+"/server'], paths: ['"+dir+"'], env: {MCPTEST: good}}\n", "")
	for range 2 {
		if s := m.start("good"); s.GetState() != runnerpb.ServerState_SERVER_STATE_UP || s.GetTools() != 10 {
			t.Fatalf("started: %v", s)
		}
		_, err := registrypb.NewHomeServiceClient(m.conn).SetHomeValue(t.Context(), &registrypb.SetHomeValueRequest{Path: []string{"mcp", "servers", "other"}, Value: "{command: ['true']}"})
		if pins, _ := m.listed("good"); len(pins) != 10 || err != nil {
			t.Errorf("%d pins, %v", len(pins), err)
		}
	}
}

// A call reports progress, and is canceled with its run.
func TestMCPProgressAndCancel(t *testing.T) {
	m := newMCP(t, goodServer, "")
	m.start("good")
	m.approve("good")
	// slow begins a call that reports its steps, and returns when the server has reported one.
	slow := func(file string) {
		m.last = m.say(m.shop, "a1", `call: good__slow {"text":"","file":"`+file+`"}`)
		s, err := m.shop.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: m.last})
		if err != nil {
			t.Fatal(err)
		}
		for step := false; !step; {
			e, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			step = strings.Contains(e.String(), "step 3")
		}
	}
	slow("go")
	if err := os.WriteFile(m.at("good", "go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if end := m.wait(m.shop, "a1", m.last); !strings.Contains(end.GetText(), "done") {
		t.Errorf("ended %v", end)
	}
	slow("end")
	if _, err := m.shop.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: m.last}); err != nil {
		t.Fatal(err)
	}
	m.until("the server is notified", func() bool { return m.read(m.at("good", "end")) == "canceled\n" })
}

// S3-60: what reads is repeated once on a new process, an effect is in doubt and happened once.
func TestMCPServerEnds(t *testing.T) {
	m := newMCP(t, goodServer, "")
	m.start("good")
	m.approve("good")
	if text := m.call(`good__crash {"text":"x","file":"crashed"}`); !strings.Contains(text, "lived") {
		t.Errorf("a read: %s", text)
	}
	if text := m.call(`good__break {"text":"x","file":"broken"}`); !strings.Contains(text, "server good ended (exit 3: broken on purpose); outcome unknown, verify before repeating") {
		t.Errorf("an effect: %s", text)
	}
	turn := m.newestTurn()
	if n := len(slices.DeleteFunc(turn.GetSteps(), func(s *registrypb.Step) bool { return s.GetState() != registrypb.StepState_STEP_STATE_IN_DOUBT })); n != 1 {
		t.Errorf("%d steps are in doubt", n)
	}
	if m.read(m.at("good", "broken")) != "x\n" {
		t.Errorf("the effect: %q", m.read(m.at("good", "broken")))
	}
}

// newestTurn is the turn of the last message.
func (c *coder) newestTurn() *registrypb.Turn {
	c.t.Helper()
	r, err := c.turns.ListTurns(c.t.Context(), &registrypb.ListTurnsRequest{AgentId: "a1"})
	if err != nil {
		c.t.Fatal(err)
	}
	var id int64
	for _, turn := range r.GetTurns() {
		id = max(id, turn.GetInboxId())
	}
	t, err := c.turns.GetTurn(c.t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return t.GetTurn()
}

// S3-61: the tools of a server that ends three times in a minute leave the next set and come back
// with it; those of another server stay.
func TestMCPServerDown(t *testing.T) {
	m := newMCP(t, goodServer+"    other: {command: [PROGRAM], env: {MCPTEST: good}, tools: {allow: [echo]}}\n", "")
	for _, name := range []string{"good", "other"} {
		m.start(name)
		m.approve(name)
	}
	if tools := m.tools(); len(tools) != 11 {
		t.Fatalf("offered: %v", tools)
	}
	for n := range 3 {
		m.call(fmt.Sprintf(`good__break {"text":"%d","file":"broken"}`, n))
	}
	down := false
	m.until("its tools have left and come back", func() bool {
		tools := m.tools()
		down = down || slices.Equal(tools, []string{"other__echo"})
		return down && len(tools) == 11
	})
	if got := m.read(m.at("good", "broken")); got != "0\n1\n2\n" {
		t.Errorf("the effects: %q", got)
	}
	if text := m.call(`good__echo {"text":"back"}`); !strings.Contains(text, "back") {
		t.Errorf("after it: %s", text)
	}
}

// A tool whose server changes it is not offered until it is approved again, and a turn that has it
// already does not call it. What is back as it was approved is offered.
func TestMCPToolChanges(t *testing.T) {
	m := newMCP(t, goodServer, "")
	m.start("good")
	_, old := m.listed("good")
	m.approve("good")
	if text := m.call(`good__change {"text":""}`); !strings.Contains(text, "changed") {
		t.Fatal(text)
	}
	m.until("the change is reported", func() bool {
		pins, _ := m.listed("good")
		return pins["echo"].GetState() == registrypb.PinState_PIN_STATE_CHANGED
	})
	if text := m.call(`good__echo {"text":"hi"}`); !strings.Contains(text, "not offered") {
		t.Errorf("after the change: %s", text)
	}
	pins, _ := m.listed("good")
	if p := pins["echo"]; strings.Contains(p.GetApproved(), "something else") || !strings.Contains(p.GetReported(), "something else") {
		t.Errorf("pin: %v", p)
	}
	m.approve("good")
	if text := m.call(`good__echo {"text":"hi"}`); !strings.Contains(text, "hi") {
		t.Errorf("after the approval: %s", text)
	}
	if _, err := m.pins.ResolvePins(t.Context(), &registrypb.ResolvePinsRequest{Server: "good", Tools: []string{"echo"}, Digest: old}); !fault.Is(err, fault.McpPinChanged) {
		t.Errorf("a decision on what is not there any more: %v", err)
	}
	r, err := m.shop.StartServer(t.Context(), &runnerpb.StartServerRequest{AgentId: "a1", Server: "good", Restart: true})
	if err != nil || r.GetServer().GetState() != runnerpb.ServerState_SERVER_STATE_UP {
		t.Fatal(r, err)
	}
	if pins, _ := m.listed("good"); pins["echo"].GetState() != registrypb.PinState_PIN_STATE_CHANGED {
		t.Errorf("as it was first approved: %v", pins["echo"])
	}
}

// S3-59: a server over HTTP gets the headers of the settings; one that refuses them is not asked again.
func TestMCPOverHTTP(t *testing.T) {
	address := mcptest.Serve(t, "Bearer token-7")
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "header")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := newMCP(t, fmt.Sprintf("    web: {url: %q, headers: {Authorization: 'file:%s'}}\n    bad: {url: %q, headers: {Authorization: 'file:%s'}}\n",
		address, file("Bearer token-7"), address, file("Bearer other")), "")
	if s := m.start("web"); s.GetState() != runnerpb.ServerState_SERVER_STATE_UP || s.GetTools() != 10 {
		t.Fatalf("started: %v", s)
	}
	m.approve("web")
	if text := m.call(`web__echo {"text":"over http"}`); !strings.Contains(text, "over http") {
		t.Errorf("echo: %s", text)
	}
	if s := m.start("bad"); s.GetState() != runnerpb.ServerState_SERVER_STATE_AUTH || !strings.Contains(s.GetWhat(), "401") || strings.Contains(s.GetWhat(), "other") {
		t.Errorf("with another header: %v", s)
	}
}

// S4-93: a server whose settings refer to what is missing is not started, and nothing is sent; the error says what is
// missing, also for the model, and the server starts when it is there.
func TestMCPSecretMissing(t *testing.T) {
	good, err := url.Parse(mcptest.Serve(t, "Bearer token-7"))
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(good)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of the stream that ends with the server
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	address, host := front.URL, strings.TrimPrefix(front.URL, "http://")
	missing := filepath.Join(t.TempDir(), "missing")
	m := newMCP(t, fmt.Sprintf(`    named: {url: %[1]q, headers: {Authorization: 'Bearer {{secret:OTHER}}'}}
    read: {url: %[1]q, headers: {Authorization: 'Bearer {{secret:SHOP}}'}}
    header: {url: %[1]q, headers: {Authorization: 'file:%[2]s'}}
    good: {command: [PROGRAM], env: {MCPTEST: good, TOKEN: 'file:%[2]s'}}
secrets:
  SHOP: {ref: 'file:%[2]s', hosts: [%[3]q]}
`, address, missing, host), "")
	start := func(name string) error {
		_, err := m.shop.StartServer(t.Context(), &runnerpb.StartServerRequest{AgentId: "a1", Server: name})
		return err
	}
	for name, what := range map[string]string{
		"named":  "there is no secret OTHER",
		"read":   "the value of the secret SHOP cannot be read from file:" + missing,
		"header": "the value of Authorization cannot be read from file:" + missing,
		"good":   "the value of TOKEN cannot be read from file:" + missing,
	} {
		err := start(name)
		if !fault.Is(err, fault.SecretMissing) || fault.From(err).What != "the MCP server "+name+" was not started: "+what || !strings.Contains(fault.From(err).Fix, "agentctl mcp restart "+name) {
			t.Errorf("%s: %v", name, fault.From(err))
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if err := os.WriteFile(missing, []byte("token-7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start("read"); err != nil {
		t.Errorf("when the value is there: %v", err)
	}
}

// Servers that do what they should not are bounded, and what they do is reported: S3-61, and the traps of the
// chapter.
func TestHostileMCPServers(t *testing.T) {
	type trap struct {
		state runnerpb.ServerState
		tools int32
		what  string // of the server
		call  string // what the model reads of a call of plain; empty: none is made
	}
	const up, down, retrying = runnerpb.ServerState_SERVER_STATE_UP, runnerpb.ServerState_SERVER_STATE_DOWN, runnerpb.ServerState_SERVER_STATE_RETRYING
	traps := map[string]trap{
		"giant-schema": {up, 1, "giant: its schema has 200 KiB", "ok"},
		"deep-schema":  {up, 1, "deep: its schema is nested more than 16 deep", "ok"},
		"remote-ref":   {up, 1, "ref: its schema refers to another document", "ok"},
		"many":         {up, 512, "9488 tools are left out", ""},
		"long-name":    {up, 1, "its name is empty, longer than 256 bytes", "ok"},
		"collisions":   {up, 4, "a_b: there are two of this name", ""},
		"instructions": {up, 1, "", "IGNORE ALL RULES"},
		"bad-utf8":     {up, 1, "", "a��b"},
		"big-result":   {up, 1, "", "ended ("},
		"flood":        {up, 1, "", "ended ("},
		"pages":        {up, 1, "more than 64 pages", ""},
		"garbage":      {down, 0, "invalid character", ""},
		"dies":         {down, 0, "exit 7: no license", ""},
		"asks":         {up, 1, "", "asked"},
	}
	var lines strings.Builder
	for name := range traps {
		fmt.Fprintf(&lines, "    %s: {command: [PROGRAM], env: {MCPTEST: %s}, timeout: 20s}\n", name, name)
	}
	m := newMCP(t, lines.String(), "")
	bounded := 0
	for name, c := range traps {
		s := m.start(name)
		if s.GetState() != c.state && !(c.state == down && s.GetState() == retrying) || s.GetTools() != c.tools || !strings.Contains(s.GetWhat(), c.what) || len(s.GetWhat()) > 1<<10 {
			t.Errorf("%s: %v", name, s)
			continue
		}
		bounded++
		if c.call != "" {
			m.approve(name)
			if text := m.call(name + `__plain {}`); !strings.Contains(text, c.call) || len(text) > 64<<10 {
				t.Errorf("%s: the call: %.300q", name, text)
			}
		}
	}
	pins, _ := m.listed("instructions")
	if d := pins["plain"].GetApproved(); len(d) > 4<<10 || strings.ContainsAny(d, "\x1b\u202e\u200b") || strings.Contains(d, `\u001b`) {
		t.Errorf("instructions: %q", d)
	}
	m.approve("many")
	all, err := m.shop.ListTools(t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	offered := 0
	for _, tool := range all.GetTools() {
		if tool.GetOverLimit() != strings.HasPrefix(tool.GetDenied(), "a model gets") {
			t.Errorf("%s: %v, %s", tool.GetName(), tool.GetOverLimit(), tool.GetDenied())
		}
		if tool.GetDenied() == "" {
			offered++
		} else if tool.GetServer() != "" && !strings.Contains(tool.GetDenied(), "a model gets at most 128 tools, and there are ") {
			t.Errorf("%s: %s", tool.GetName(), tool.GetDenied())
		}
	}
	if offered != 128 {
		t.Errorf("%d tools are offered", offered)
	}
	t.Logf("mcp-hostile: servers=%d bounded=%d", len(traps), bounded)
}

// A server that answers nothing is given up, and the call of one that hangs.
func TestMCPSilence(t *testing.T) {
	m := newMCP(t, goodServer+"    silent: {command: [PROGRAM], env: {MCPTEST: silent}}\n", "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r, err := m.shop.StartServer(ctx, &runnerpb.StartServerRequest{AgentId: "a1", Server: "silent"})
	if err == nil && r.GetServer().GetState() == runnerpb.ServerState_SERVER_STATE_UP {
		t.Errorf("it is up: %v", r)
	}
}

// S4-93: with external_guard mcp a call with an effect that follows a result from outside asks the owner, and runs once
// after a yes; without a result from outside it does not ask.
func TestMCPGuard(t *testing.T) {
	m := newMCP(t, goodServer, ", external_guard: [mcp]")
	m.start("good")
	m.approve("good")
	if text := m.call(`good__append {"text":"first","file":"log"}`); !strings.Contains(text, "written") {
		t.Errorf("without a result from outside: %s", text)
	}
	m.shop.stop()
	use := func(name, args string) modeltest.Step {
		return modeltest.Step{ToolCalls: []modeltest.ToolCall{{ID: "c-" + name, Name: name, Arguments: []string{args}}}}
	}
	answers := map[string]bool{"approved": true, "denied": false}
	var steps []modeltest.Step
	for _, text := range []string{"approved", "denied"} {
		steps = append(steps, use("good__echo", `{"text":"a page"}`), use("good__append", `{"text":"`+text+`","file":"log"}`), modeltest.Say("done"))
	}
	m.shop = m.runner(modeltest.New(t, steps...), func(c *runner.Config) { c.Servers = m.root })
	approvals := registrypb.NewApprovalServiceClient(m.conn)
	for _, text := range []string{"approved", "denied"} {
		m.last = m.say(m.shop, "a1", "go")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		watch, err := approvals.WatchApprovals(ctx, &registrypb.WatchApprovalsRequest{})
		var asked *registrypb.Approval
		for err == nil && asked == nil {
			var r *registrypb.WatchApprovalsResponse
			if r, err = watch.Recv(); err == nil && r.GetApproval().GetState() == registrypb.ApprovalState_APPROVAL_STATE_PENDING {
				asked = r.GetApproval()
			}
		}
		cancel()
		if err != nil || !strings.HasPrefix(asked.GetCommand(), "good__append ") || !asked.GetExternal() {
			t.Fatal(asked, err)
		}
		if _, err := approvals.ResolveApproval(t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: asked.GetApprovalId(), Approve: answers[text]}); err != nil {
			t.Fatal(err)
		}
		if end := m.wait(m.shop, "a1", m.last); end.GetText() != "done" {
			t.Errorf("%s: %v", text, end)
		}
	}
	if got := m.read(m.at("good", "log")); got != "first\napproved\n" {
		t.Errorf("the effects: %q", got)
	}
}
