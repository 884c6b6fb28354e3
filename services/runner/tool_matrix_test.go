//go:build proof

package runner_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

// A trial is a message whose runner is killed at an instant, with what is true after another
// runner has ended the work.
type trial struct {
	agent string
	text  func(n int) string // of the n-th message
	times int                // at which of the instants of that name the runner dies; 0: the first
	// stop is done while the runner works, and before and after before and after the next one is
	// started; nil: nothing.
	stop, before, after func(m *matrix, p *pursued)
	check               func(m *matrix, p *pursued)
}

// pursued is one message of a trial.
type pursued struct {
	n      int
	at     string
	id     int64 // in the inbox
	runner *hunted
	turn   *registrypb.Turn
	reply  int64 // the message that is the answer
	// asked are the ids of the approvals or questions of the turn.
	asked []string
}

// matrix is the proof: a registry, and runners that die.
type matrix struct {
	*world
	prey
	approvals  registrypb.ApprovalServiceClient
	questions  registrypb.QuestionServiceClient
	lost, dup  int
	doubts     int
	violations []string
}

func (m *matrix) violate(p *pursued, format string, args ...any) {
	m.violations = append(m.violations, fmt.Sprintf("%s, message %d: ", p.at, p.n)+fmt.Sprintf(format, args...))
}

const (
	boxed = "boxed" // its commands run in the sandbox
	host  = "host"  // its commands ask first
)

// append1 is a command that writes the number of its message into a file.
func append1(n int) string {
	return "call: " + bashCall(fmt.Sprintf("echo %d >>log", n), "")
}

// touch is a command that no list allows.
func touch(n int) string {
	return "call: " + bashCall(fmt.Sprintf("/usr/bin/touch ran-%d", n), "")
}

func (m *matrix) path(agent, name string) string {
	return filepath.Join(m.home.Path(), "agents", agent, "workdir", name)
}

// lines counts the lines of a file that are a number.
func (m *matrix) lines(agent string, n int) (count int) {
	b, _ := os.ReadFile(m.path(agent, "log")) // none: nothing ran
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == strconv.Itoa(n) {
			count++
		}
	}
	return count
}

// doubt reports whether a call of the turn is in doubt.
func (p *pursued) doubt() bool {
	return slices.ContainsFunc(p.turn.GetSteps(), func(s *registrypb.Step) bool { return s.GetState() == registrypb.StepState_STEP_STATE_IN_DOUBT })
}

// effect checks a command: it ran once, or it is in doubt and ran at most once.
func effect(ran func(m *matrix, p *pursued) int) func(m *matrix, p *pursued) {
	return func(m *matrix, p *pursued) {
		n, doubt := ran(m, p), p.doubt()
		switch {
		case n > 1:
			m.dup++
		case n == 0 && !doubt:
			m.lost++
		}
		if doubt {
			m.doubts++
		}
		if doubt != slices.Contains([]string{"T4.after", "T6.before", "TA3", "mcp:call", "TM1"}, p.at) {
			m.violate(p, "in doubt: %v", doubt)
		}
		if slices.Contains([]string{"T4.after", "TA3", "mcp:call"}, p.at) && n != 0 || slices.Contains([]string{"T6.before", "TM1"}, p.at) && n != 1 {
			m.violate(p, "the command ran %d times", n)
		}
	}
}

func wrote(m *matrix, p *pursued) int { return m.lines(p.agentOf(), p.n) }

func touched(m *matrix, p *pursued) int {
	if _, err := os.Stat(m.path(host, fmt.Sprint("ran-", p.n))); err == nil {
		return 1
	}
	return 0
}

func (p *pursued) agentOf() string { return p.turn.GetAgentId() }

// patch changes three files at once; they are made by the message before it.
func patch(n int) string {
	return fmt.Sprintf(`call: write {"path":"a-%d","content":"old\n"}`+"\n"+`call: write {"path":"b-%d","content":"old\n"}`+"\n"+
		`call: apply_patch {"patch":"*** Begin Patch\n*** Update File: a-%d\n-old\n+new\n*** Update File: b-%d\n-old\n+new\n*** Add File: c-%d\n+new\n*** End Patch"}`, n, n, n, n, n)
}

// patched checks that all three files are changed, once.
func patched(m *matrix, p *pursued) {
	for _, name := range []string{"a", "b", "c"} {
		b, err := os.ReadFile(m.path(boxed, fmt.Sprintf("%s-%d", name, p.n)))
		if err != nil || string(b) != "new\n" {
			m.violate(p, "I44: file %s is %q, %v", name, b, err)
		}
	}
	for _, s := range p.turn.GetSteps() {
		if s.GetName() == "apply_patch" && !strings.Contains(string(s.GetResult()), "patched 3 files") {
			m.violate(p, "the model reads %s", s.GetResult())
		}
	}
	if p.doubt() {
		m.violate(p, "a change of files is in doubt")
	}
}

// pendingApproval waits for the approval of the message, and notes it.
func (m *matrix) pendingApproval(p *pursued) {
	m.notice(p, func() (ids []string, err error) {
		r, err := m.approvals.ListApprovals(m.prey.t.Context(), &registrypb.ListApprovalsRequest{AgentId: host, State: registrypb.ApprovalState_APPROVAL_STATE_PENDING})
		for _, a := range r.GetApprovals() {
			if strings.Contains(a.GetKey(), fmt.Sprintf(":%d:", p.id)) || strings.Contains(a.GetCommand(), fmt.Sprint("ran-", p.n)) {
				ids = append(ids, a.GetApprovalId())
			}
		}
		return ids, err
	})
}

func (m *matrix) pendingQuestion(p *pursued) {
	m.notice(p, func() (ids []string, err error) {
		r, err := m.questions.ListQuestions(m.prey.t.Context(), &registrypb.ListQuestionsRequest{AgentId: boxed, State: registrypb.QuestionState_QUESTION_STATE_PENDING})
		for _, q := range r.GetQuestions() {
			ids = append(ids, q.GetQuestionId())
		}
		return ids, err
	})
}

// notice waits until there is what list returns, and notes it.
func (m *matrix) notice(p *pursued, list func() ([]string, error)) {
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		ids, err := list()
		if err != nil {
			m.prey.t.Fatal(err)
		}
		if len(ids) > 0 {
			p.asked = append(p.asked, ids...)
			return
		}
		if time.Now().After(end) {
			m.prey.t.Fatalf("%s, message %d: nothing is asked", p.at, p.n)
		}
	}
}

func (m *matrix) approve(p *pursued) {
	if _, err := m.approvals.ResolveApproval(m.prey.t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: p.asked[0], Approve: true}); err != nil {
		m.violate(p, "approve: %v", err)
	}
}

func (m *matrix) answer(p *pursued) {
	if _, err := m.questions.AnswerQuestion(m.prey.t.Context(), &registrypb.AnswerQuestionRequest{QuestionId: p.asked[0], Answer: "savings"}); err != nil {
		m.violate(p, "answer: %v", err)
	}
}

// push sends a message of a person, and returns its id in the inbox.
func (m *matrix) push(agent, text string) int64 {
	r, err := m.threads.PushEvents(m.prey.t.Context(), &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: agent, ThreadId: "inbox"},
		Events: []*registrypb.NewEvent{{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: `{"text":` + strconv.Quote(text) + `}`}},
	})
	if err != nil {
		m.prey.t.Fatal(err)
	}
	return r.GetEventIds()[0]
}

// said counts the messages with a question behind an event of a conversation.
func (m *matrix) said(thread string, after int64) (n int) {
	page, err := m.threads.PeekEvents(m.prey.t.Context(), &registrypb.PeekEventsRequest{Thread: &registrypb.ThreadRef{AgentId: boxed, ThreadId: thread}, AfterId: after})
	if err != nil {
		m.prey.t.Fatal(err)
	}
	for _, e := range page.GetEvents() {
		if e.GetSource() == "self" && e.GetType() == "message" && strings.Contains(e.GetContent(), jsonText(numbered)) {
			n++
		}
	}
	return n
}

// answerSaid answers a question when the person has read it.
func (m *matrix) answerSaid(p *pursued) {
	m.pendingQuestion(p)
	r, err := m.turns.GetTurn(m.prey.t.Context(), &registrypb.GetTurnRequest{AgentId: boxed, InboxId: p.id})
	if err != nil {
		m.prey.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); m.said(r.GetTurn().GetThreadId(), r.GetTurn().GetInboundEventId()) == 0; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.prey.t.Fatalf("%s, message %d: the question was not said", p.at, p.n)
		}
	}
	m.answer(p)
}

// asked checks a question: one of it, one message with it, and one answer.
func asked(m *matrix, p *pursued) {
	if len(slices.Compact(slices.Clone(p.asked))) != 1 {
		m.violate(p, "asked as %v", p.asked)
	}
	said := m.said(p.turn.GetThreadId(), p.turn.GetInboundEventId())
	switch {
	case said == 0:
		m.lost++
		m.violate(p, "the question was not said")
	case said > 1:
		m.dup++
		m.violate(p, "the question was said %d times", said)
	}
	if !slices.ContainsFunc(p.turn.GetSteps(), func(s *registrypb.Step) bool { return strings.Contains(string(s.GetResult()), `"savings"`) }) {
		m.violate(p, "the model has no answer")
	}
}

// marker is the command line of the process of a message.
func marker(n int) string { return fmt.Sprintf("sleep 2000.%d%05d", os.Getpid(), n) }

func background(command func(n int) string) func(n int) string {
	return func(n int) string { return "call: " + bashCall(command(n), `,"background":true`) }
}

// accounted checks a process: it has ended with its runner, and the agent has one message about that.
func accounted(m *matrix, p *pursued) {
	source, got := "internal:process:"+idOfRun(p.turn.GetKey())+":", 0
	for end := time.Now().Add(time.Minute); got == 0 && time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		page, err := m.threads.PeekEvents(m.prey.t.Context(), &registrypb.PeekEventsRequest{Thread: &registrypb.ThreadRef{AgentId: boxed, ThreadId: "inbox"}, AfterId: p.id})
		if err != nil {
			m.prey.t.Fatal(err)
		}
		for _, e := range page.GetEvents() {
			if strings.HasPrefix(e.GetSource(), source) {
				got++
			}
		}
	}
	switch {
	case got == 0:
		m.lost++
		m.violate(p, "I41: no message says that the process has ended")
	case got > 1:
		m.dup++
		m.violate(p, "I41: %d messages say that the process has ended", got)
	}
	if n := running(m.prey.t, marker(p.n)); n > 0 {
		m.violate(p, "%d programs run", n)
	}
}

// note is a call of an MCP server that writes the number of its message into a file.
func note(n int) string { return fmt.Sprintf(`call: good__append {"text":"%d","file":"log"}`, n) }

// read checks a call that reads: it was made again.
func read(m *matrix, p *pursued) {
	if p.doubt() {
		m.violate(p, "a read is in doubt")
	}
	for _, s := range p.turn.GetSteps() {
		if s.GetName() == "good__echo" && !strings.Contains(string(s.GetResult()), fmt.Sprint("number ", p.n)) {
			m.lost++
			m.violate(p, "the model reads %s", s.GetResult())
		}
	}
}

// points are the labels that are points of the code under another name.
var points = map[string]string{"TM1": "mcp:answer", "TM2": "mcp:answer"}

// trials are one for each label.
var trials = map[string]trial{
	"mcp:call":  {agent: boxed, text: note, check: effect(wrote)},
	"TM1":       {agent: boxed, text: note, check: effect(wrote)},
	"TM2":       {agent: boxed, text: func(n int) string { return fmt.Sprintf(`call: good__echo {"text":"number %d"}`, n) }, check: read},
	"TX1":       {agent: boxed, text: background(func(n int) string { return "exec " + marker(n) }), check: accounted},
	"TX2":       {agent: boxed, text: background(func(n int) string { return "exec " + marker(n) }), check: accounted},
	"TX3":       {agent: boxed, text: background(func(int) string { return "true" }), check: accounted},
	"T4.before": {agent: boxed, text: append1, check: effect(wrote)}, "T4.after": {agent: boxed, text: append1, check: effect(wrote)},
	"T6.before": {agent: boxed, text: append1, check: effect(wrote)}, "T6.after": {agent: boxed, text: append1, check: effect(wrote)},
	"file:staged": {agent: boxed, text: patch, times: 3, check: patched}, "file:ready": {agent: boxed, text: patch, times: 3, check: patched},
	"file:placed": {agent: boxed, text: patch, check: patched},
	"TA1": {
		agent: host, text: touch, check: effect(touched), after: func(m *matrix, p *pursued) { m.pendingApproval(p); m.same(p); m.approve(p) },
		stop: func(m *matrix, p *pursued) { m.pendingApproval(p); p.runner.kill() },
	},
	"TA2": {
		agent: host, text: touch, check: effect(touched), before: (*matrix).approve,
		stop: func(m *matrix, p *pursued) { m.pendingApproval(p); p.runner.kill() },
	},
	"TA3": {agent: host, text: touch, check: effect(touched), stop: func(m *matrix, p *pursued) { m.pendingApproval(p); m.approve(p) }},
	"TQ1": {agent: boxed, text: func(int) string { return which }, check: asked, after: (*matrix).answerSaid},
	"TQ2": {agent: boxed, text: func(int) string { return which }, check: asked, after: (*matrix).answerSaid},
	"TQ3": {agent: boxed, text: func(int) string { return which }, check: func(m *matrix, p *pursued) { asked(m, p); m.joined(p) }, stop: func(m *matrix, p *pursued) {
		m.pendingQuestion(p)
		p.reply = m.push(boxed, "savings")
	}},
}

// same checks that the question which is there now is the one from before.
func (m *matrix) same(p *pursued) {
	if len(p.asked) != 2 || p.asked[0] != p.asked[1] {
		m.violate(p, "I42: asked as %v", p.asked)
	}
}

// joined checks that the message with the answer has no reply of its own.
func (m *matrix) joined(p *pursued) {
	if turn := m.fate(boxed, p.reply); turn.GetFate() != registrypb.Fate_FATE_MERGED || turn.GetLeader() != p.turn.GetKey() {
		m.violate(p, "the message with the answer is %v", turn.GetFate())
	}
}

// TestToolMatrix kills runners at each instant of the calls of tools, on both engines, and checks
// what the next runner makes of it: no command twice, each change of files once, each approval and
// question used once, and what is in doubt reported. KILLS is how many in all.
func TestToolMatrix(t *testing.T) {
	kills := 60
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
	labels := []string{"T4.before", "T4.after", "T6.before", "T6.after", "file:staged", "file:ready", "file:placed", "TA1", "TA2", "TA3", "TQ1", "TQ2", "TQ3", "TX1", "TX2", "TX3", "mcp:call", "TM1", "TM2"}
	if len(labels) != len(trials) {
		t.Fatalf("%d labels and %d trials", len(labels), len(trials))
	}
	for _, store := range []string{"sqlite", "postgres"} {
		var mu sync.Mutex
		var all matrix
		hit := map[string]int{}
		t.Run(store, func(t *testing.T) {
			var server *pgtest.Cluster
			if store == "postgres" {
				server = pgtest.Start(t, "fsync = off")
			}
			for world := range worlds {
				t.Run(fmt.Sprint(world), func(t *testing.T) {
					t.Parallel()
					o := backendtest.Options{Home: t.TempDir()}
					if server != nil {
						o.DSN = server.Database(t)
					}
					m := newMatrix(t, o)
					for n := world; n < kills/2; n += worlds {
						at := labels[n%len(labels)]
						m.run(trials[at], &pursued{n: n, at: at})
						mu.Lock()
						hit[at]++
						mu.Unlock()
					}
					mu.Lock()
					defer mu.Unlock()
					all.lost, all.dup, all.doubts, all.violations = all.lost+m.lost, all.dup+m.dup, all.doubts+m.doubts, append(all.violations, m.violations...)
				})
			}
		})
		fmt.Fprintf(os.Stdout, "tool-matrix store=%s kills=%d labels=%d/%d in_doubt=%d lost=%d dup=%d violations=%d\n", store, kills/2, len(hit), len(labels), all.doubts, all.lost, all.dup, len(all.violations))
		if all.lost+all.dup+len(all.violations) > 0 || kills/2 >= len(labels) && len(hit) != len(labels) {
			t.Error(strings.Join(all.violations, "\n"))
		}
	}
}

// worlds is how many registries work at the same time: most of a trial is the wait for the lease of
// the runner that was killed.
const worlds = 4

func newMatrix(t *testing.T, o backendtest.Options) *matrix {
	w, socket := socketWorld(t, o)
	m := &matrix{world: w, prey: prey{t, socket, t.TempDir()}, approvals: registrypb.NewApprovalServiceClient(w.conn), questions: registrypb.NewQuestionServiceClient(w.conn)}
	if err := os.WriteFile(filepath.Join(m.dir, "providers.yaml"), []byte("default: offline\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.makeServer()
	m.makeAgent(boxed, [][2]string{{"tools.profile", "full"}, {"tools.web_search.provider", "off"}})
	m.makeAgent(host, [][2]string{{"sandbox.mode", "off"}, {"tools.exec.security", "allowlist"}, {"tools.exec.ask", "on-miss"}})
	return m
}

// makeServer adds an MCP server, whose tools are approved.
func (m *matrix) makeServer() {
	self, err := os.Executable()
	if err == nil {
		_, err = registrypb.NewHomeServiceClient(m.conn).SetHomeValue(m.prey.t.Context(), &registrypb.SetHomeValueRequest{
			Path: []string{"mcp", "servers", "good"}, Value: fmt.Sprintf("{command: [%q], env: {%s: %s}, cwd: workdir}", self, mcptest.Variable, mcptest.Good),
		})
	}
	if err != nil {
		m.prey.t.Fatal(err)
	}
	m.makeAgent("starter", nil)
	shop := m.runner(nil)
	ctx, cancel := context.WithTimeout(m.prey.t.Context(), time.Minute)
	defer cancel()
	r, err := shop.StartServer(ctx, &runnerpb.StartServerRequest{AgentId: "starter", Server: "good"})
	pins := registrypb.NewPinServiceClient(m.conn)
	if err == nil {
		var list *registrypb.ListPinsResponse
		if list, err = pins.ListPins(ctx, &registrypb.ListPinsRequest{Server: "good"}); err == nil {
			_, err = pins.ResolvePins(ctx, &registrypb.ResolvePinsRequest{Server: "good", Approve: true, Digest: list.GetDigest()})
		}
	}
	if err != nil {
		m.prey.t.Fatal(r, err)
	}
	shop.stop()
}

func (m *matrix) makeAgent(id string, settings [][2]string) {
	_, err := m.agents.CreateAgent(m.prey.t.Context(), &registrypb.CreateAgentRequest{AgentId: id})
	for _, kv := range settings {
		if err == nil {
			_, err = m.agents.SetAgentConfig(m.prey.t.Context(), &registrypb.SetAgentConfigRequest{AgentId: id, Key: kv[0], Value: kv[1]})
		}
	}
	if err == nil {
		_, err = m.agents.StartAgent(m.prey.t.Context(), &registrypb.StartAgentRequest{AgentId: id})
	}
	if err != nil {
		m.prey.t.Fatal(err)
	}
}

// run makes one trial.
func (m *matrix) run(tr trial, p *pursued) {
	text := tr.text(p.n)
	p.runner = m.start(cmp.Or(points[p.at], p.at), max(tr.times, 1))
	p.id = m.push(tr.agent, text)
	if tr.stop != nil {
		tr.stop(m, p)
	}
	p.runner.dead()
	if tr.before != nil {
		tr.before(m, p)
	}
	next := m.start("never", 0)
	if tr.after != nil {
		tr.after(m, p)
	}
	if p.turn = m.fate(tr.agent, p.id); p.turn.GetFate() != registrypb.Fate_FATE_REPLIED {
		m.violate(p, "its fate is %v", p.turn.GetFate())
	}
	tr.check(m, p)
	next.stop()
}
