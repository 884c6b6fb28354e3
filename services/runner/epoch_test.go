package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// tap is a connection to the registry on which a test sees what is pushed, and sets what a claim
// answers.
type tap struct {
	grpc.ClientConnInterface

	mu   sync.Mutex
	push []*registrypb.NewEvent
	set  func(*registrypb.TurnConfig)
}

func (e *tap) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := e.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if in, ok := args.(*registrypb.PushEventsRequest); ok {
		e.push = append(e.push, in.GetEvents()...)
	}
	if out, ok := reply.(*registrypb.BeginTurnResponse); ok && err == nil && e.set != nil && out.GetConfig() != nil {
		e.set(out.GetConfig())
	}
	return err
}

// tapped makes the runners that are started from now on use such a connection.
func (w *world) tapped() *tap {
	e := &tap{ClientConnInterface: w.conn}
	w.wire = e
	return e
}

// nextEpoch lets an epoch of each conversation of the agent begin with its next message.
func (w *world) nextEpoch() {
	w.t.Helper()
	sessions := registrypb.NewSessionServiceClient(w.conn)
	list, err := sessions.ListSessions(w.t.Context(), &registrypb.ListSessionsRequest{AgentId: "a1"})
	if err != nil || len(list.GetSessions()) == 0 {
		w.t.Fatalf("sessions %v, %v", list, err)
	}
	for _, s := range list.GetSessions() {
		if _, err := sessions.ResetSession(w.t.Context(), &registrypb.ResetSessionRequest{AgentId: "a1", Key: s.GetKey()}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// answered sends a message of the owner, and answeredTo one of a source; they wait for its end
// and for the digest that follows it.
func (w *world) answered(r *workshop, text string) {
	w.t.Helper()
	w.answeredTo(r, "", text)
}

func (w *world) answeredTo(r *workshop, source, text string) {
	w.t.Helper()
	run, err := r.StartRun(w.t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: source, Text: text})
	if err != nil {
		w.t.Fatal(err)
	}
	if end := w.wait(r, "a1", run.GetRunId()); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK {
		w.t.Fatalf("%s: %v", text, end)
	}
	for active := true; active; {
		info, err := r.GetRunnerInfo(w.t.Context(), &runnerpb.GetRunnerInfoRequest{})
		if err != nil {
			w.t.Fatal(err)
		}
		active = info.GetDigestsActive() > 0
	}
}

const (
	consoleFile = "memory/thread-threads%2Fpeers%2Fcli-cli.md"
	ownerFile   = "memory/user-cli-cli.md"
)

func (w *world) file(name string) string {
	w.t.Helper()
	f, err := w.agents.ReadAgentFile(w.t.Context(), &registrypb.ReadAgentFileRequest{AgentId: "a1", Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(f.GetContent())
}

// past are the digests of ended epochs.
func (w *world) past() (out []string) {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(w.home.AgentDir("a1"), "memory", "past", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// known are the facts in what BuildContext answers.
func (w *world) known(r *workshop, at int64) []string {
	w.t.Helper()
	c, err := r.BuildContext(w.t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: console, AtEvent: at})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, p := range c.GetParts() {
		all = append(all, p.GetText())
	}
	return modeltest.Facts(strings.Join(all, " "))
}

func (w *world) lastMessage() int64 {
	list := w.events("a1", console)
	return list[len(list)-1].GetId()
}

// After an epoch has begun the model sees nothing of the one before, neither its
// messages nor their digest, in no prompt and in no request for a digest; what is known of
// the peer stays.
func TestEpoch(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t, modeltest.FactModel())
	w.agent("a1", "compaction:\n  after_turns: 2\n  peer_every: 1\noutbound: []")
	r := w.runner(script)
	w.answered(r, "fact-one")
	w.answered(r, "fact-two")
	if got := modeltest.Facts(w.file(consoleFile)); !slices.Equal(got, []string{"fact-one", "fact-two"}) || w.file(ownerFile) == "" {
		t.Fatalf("before: %q, %q", w.file(consoleFile), w.file(ownerFile))
	}
	if _, err := w.agents.WriteAgentFile(t.Context(), &registrypb.WriteAgentFileRequest{AgentId: "a1", Name: ownerFile, Content: []byte("fact-peer\n")}); err != nil {
		t.Fatal(err)
	}
	w.answered(r, "fact-three")
	before := w.lastMessage()

	rec := &recorder{script: script}
	for _, step := range []struct {
		text   string
		prompt []string
		digest []string // of the thread, that follows; nil: none
	}{
		{"fact-four", []string{"fact-four", "fact-peer"}, nil},
		{"fact-five", []string{"fact-five", "fact-four", "fact-peer"}, []string{"fact-five", "fact-four"}},
	} {
		if step.digest == nil {
			w.nextEpoch()
		}
		rec.reset()
		w.answered(r, step.text)
		prompts, digests := rec.replies(), rec.digests()
		if len(prompts) != 1 {
			t.Fatalf("%s: %d prompts", step.text, len(prompts))
		}
		if got := sorted(modeltest.Facts(prompts[0].Text())); !slices.Equal(got, step.prompt) {
			t.Errorf("%s: the prompt knows %q, want %q", step.text, got, step.prompt)
		}
		if step.digest == nil {
			if len(digests) != 0 {
				t.Errorf("%s: digests %v", step.text, digests)
			}
			if got := w.past(); len(got) != 1 || !slices.Equal(modeltest.Facts(got[0]), []string{"fact-one", "fact-two"}) || w.file(consoleFile) != "" {
				t.Errorf("%s: past digests %q, present %q", step.text, got, w.file(consoleFile))
			}
			continue
		}
		if len(digests) == 0 {
			t.Fatalf("%s: no digest", step.text)
		}
		if got := sorted(modeltest.Facts(digests[0].Text())); !slices.Equal(got, step.digest) || !strings.Contains(digests[0].Text(), "(nothing yet)") {
			t.Errorf("%s: the digest is made of %q", step.text, digests[0].Text())
		}
	}
	if got := sorted(modeltest.Facts(w.file(consoleFile))); !slices.Equal(got, []string{"fact-five", "fact-four"}) {
		t.Errorf("memory of the thread: %q", w.file(consoleFile))
	}
	if got := sorted(modeltest.Facts(w.file(ownerFile))); !slices.Contains(got, "fact-peer") {
		t.Errorf("memory of the peer: %q", w.file(ownerFile))
	}
	if now := w.known(r, 0); slices.Contains(now, "fact-three") || slices.Contains(now, "fact-one") || !slices.Contains(now, "fact-five") {
		t.Errorf("the context is %q", now)
	}
	// A message of the earlier epoch had its own messages, and not the digest of a later one.
	if then := w.known(r, before); !slices.Contains(then, "fact-three") || !slices.Contains(then, "fact-one") || slices.Contains(messagesOf(t, w, r, before), "fact-four") {
		t.Errorf("the context of event %d is %q", before, then)
	}
}

// messagesOf are the facts in a context but for what is known of the peer.
func messagesOf(t *testing.T, w *world, r *workshop, at int64) []string {
	t.Helper()
	c, err := r.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: console, AtEvent: at})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range c.GetParts() {
		if p.GetName() != ownerFile {
			all = append(all, p.GetText())
		}
	}
	return modeltest.Facts(strings.Join(all, " "))
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// A prompt that lacks messages of its epoch has them digested, and none of the epoch before: the
// messages that were never digested do not make a digest due in the next epoch.
func TestEpochOfUndigestedMessages(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t, modeltest.FactModel())
	w.agent("a1", "context:\n  recent_messages: 4\noutbound: []\ncompaction:\n  strategy: truncate")
	r := w.runner(script)
	w.answered(r, "fact-one")
	// From here on digests are made.
	if _, err := w.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: "a1", Key: "compaction.strategy", Value: "summarise"}); err != nil {
		t.Fatal(err)
	}
	w.nextEpoch()
	rec := &recorder{script: script}
	for _, text := range []string{"fact-two", "fact-three", "fact-four", "fact-five"} {
		w.answered(r, text)
	}
	digests := rec.digests()
	if len(digests) == 0 {
		t.Fatal("no digest")
	}
	for _, d := range digests {
		if strings.Contains(d.Text(), "fact-one") {
			t.Errorf("a digest is made of %q", d.Text())
		}
	}
	if got := modeltest.Facts(w.file(consoleFile)); slices.Contains(got, "fact-one") || !slices.Contains(got, "fact-two") {
		t.Errorf("memory of the thread: %q", got)
	}
}

// In a thread that many share, the memory of a peer is made of their words of the epoch.
func TestPeerOfASharedThreadInAnEpoch(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t, modeltest.FactModel())
	w.agent("a1", "routing:\n  default: per-channel\ncompaction:\n  after_turns: 2\n  peer_every: 1\noutbound: []")
	r := w.runner(script)
	const alice = "external:telegram:main:dm:alice:alice"
	w.answeredTo(r, alice, "fact-one")
	w.nextEpoch()
	w.answeredTo(r, alice, "fact-two")
	rec := &recorder{script: script}
	rec.reset()
	w.answeredTo(r, alice, "fact-three")
	digests := rec.digests()
	if len(digests) != 2 {
		t.Fatalf("%d digests", len(digests))
	}
	for i, d := range digests {
		if got := sorted(modeltest.Facts(d.Text())); !slices.Equal(got, []string{"fact-three", "fact-two"}) {
			t.Errorf("digest %d is made of %q", i, got)
		}
	}
}

// A digest that follows the last turn of an epoch, and is made while the next one has begun, is no
// part of that: neither a turn that waits for it nor the next digest has anything of it.
func TestDigestOfAnEarlierEpochIsLate(t *testing.T) {
	p := newSlowDigests(t)
	w := newWorld(t)
	w.agent("a1", "context:\n  recent_messages: 2\noutbound: []")
	r := w.runnerAt(p.url)
	say := func(text string) {
		t.Helper()
		if end := w.wait(r, "a1", w.say(r, "a1", text)); end.GetText() != "ok" {
			t.Fatalf("%s: %v", text, end)
		}
	}
	say("fact-one")
	late := <-p.asked
	w.nextEpoch()
	for _, text := range []string{"fact-two", "fact-three"} {
		say(text)
	}
	run := w.say(r, "a1", "fact-four") // its prompt lacks fact-two, so it waits for the digest
	s, err := r.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	for waits := false; !waits; {
		item, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		waits = item.GetStream() == runnerpb.RunStream_RUN_STREAM_COMPACTION
	}
	p.release <- true
	own := <-p.asked
	p.release <- true
	if end := w.wait(r, "a1", run); end.GetText() != "ok" {
		t.Fatalf("%v", end)
	}
	for _, c := range []struct {
		what string
		chat modeltest.Chat
		want []string
	}{
		{"the late digest", late, []string{"fact-one"}},
		{"the digest of the epoch", own, []string{"fact-three", "fact-two"}},
		{"the prompt", p.last(), []string{"fact-four", "fact-three", "fact-two"}},
	} {
		if got := sorted(modeltest.Facts(c.chat.Text())); !slices.Equal(got, c.want) {
			t.Errorf("%s is made of %q, want %q", c.what, got, c.want)
		}
	}
	if got := sorted(modeltest.Facts(w.file(consoleFile))); !slices.Equal(got, []string{"fact-three", "fact-two"}) {
		t.Errorf("memory of the thread: %q", got)
	}
	if got := w.past(); len(got) != 1 || !slices.Equal(modeltest.Facts(got[0]), []string{"fact-one"}) {
		t.Errorf("past digests %q", got)
	}
}

// A digest that a person asks for is one of the epoch too.
func TestCompactMemoryInAnEpoch(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t, modeltest.FactModel())
	w.agent("a1", "outbound: []")
	r := w.runner(script)
	compact := func() *runnerpb.CompactMemoryResponse {
		t.Helper()
		out, err := r.CompactMemory(t.Context(), &runnerpb.CompactMemoryRequest{AgentId: "a1", ThreadId: console})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	w.answered(r, "fact-one")
	compact()
	w.answered(r, "fact-two")
	w.nextEpoch()
	w.answered(r, "fact-three")
	rec := &recorder{script: script}
	rec.reset()
	if out := compact(); out.GetMessages() != 2 || out.GetName() != consoleFile {
		t.Errorf("digested: %v", out)
	}
	if d := rec.digests(); len(d) != 1 || !slices.Equal(modeltest.Facts(d[0].Text()), []string{"fact-three"}) {
		t.Errorf("the digest is made of %v", d)
	}
	if got := modeltest.Facts(w.file(consoleFile)); !slices.Equal(got, []string{"fact-three"}) {
		t.Errorf("memory of the thread: %q", got)
	}
	if out := compact(); out.GetName() != "" {
		t.Errorf("digested again: %v", out)
	}
}

// S1-05: a conversation says how its runs think; a message of the owner's says it for its own run,
// and a setting that cannot be used changes nothing.
func TestThinkingOfAConversation(t *testing.T) {
	w := newWorld(t)
	e := w.tapped()
	w.agent("a1", "outbound: []")
	script := modeltest.New(t, modeltest.Step{Repeat: true, Text: []string{"ok"}})
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "providers:\n  work: {api: anthropic, base_url: " + script.URL() + ", models: [m1], thinking: 1024}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	for n, c := range []struct{ set, source, thinking, want string }{
		{"adaptive", "", "", `"type":"adaptive"`},
		{"adaptive", "external:telegram:main:dm:bob:bob", "", `"type":"adaptive"`},
		{"adaptive", "external:telegram:main:dm:bob:bob", "2048", `"type":"adaptive"`},
		{"adaptive", "", "2048", `"budget_tokens":2048`},
		{"high", "", "", `"budget_tokens":20480`},
		{"high", "", "low", `"budget_tokens":4096`},
		{"off", "", "", ""},
		{"much", "", "", `"budget_tokens":1024`},
		{"", "", "", `"budget_tokens":1024`},
	} {
		e.mu.Lock()
		e.set = func(t *registrypb.TurnConfig) { t.Thinking = c.set }
		e.mu.Unlock()
		run, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: c.source, Text: "hi", Thinking: c.thinking})
		if err != nil {
			t.Fatal(err)
		}
		w.wait(r, "a1", run.GetRunId())
		if body := string(script.Requests()[n].Body); strings.Contains(body, `"thinking":{`) != (c.want != "") || !strings.Contains(body, c.want) {
			t.Errorf("%v: %s", c, body)
		}
	}
}

// A run is started in a session by its key; the registry decides about it.
func TestStartRunInASession(t *testing.T) {
	w := newWorld(t)
	e := w.tapped()
	w.agent("a1", "outbound: []")
	r := w.runner(nil)
	const key = "agent:a1:telegram:tg:dm:1207"
	for n, want := range []string{key, ""} {
		run, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "say: hello", SessionKey: want})
		if err != nil {
			t.Fatal(err)
		}
		if end := w.wait(r, "a1", run.GetRunId()); end.GetText() != "hello" {
			t.Errorf("%q: %v", want, end)
		}
		e.mu.Lock()
		if len(e.push) != n+1 || e.push[n].GetSessionKey() != want {
			t.Errorf("pushed: %v", e.push)
		}
		e.mu.Unlock()
		turn, err := w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: run.GetInboxId()})
		if err != nil || turn.GetTurn().GetSessionKey() != want || (turn.GetTurn().GetThreadId() == console) != (want == "") {
			t.Errorf("%q: turn %v, %v", want, turn, err)
		}
	}
	if _, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "hi", SessionKey: "agent:a2:main"}); !fault.Is(err, fault.SessionKeyInvalid) {
		t.Errorf("a session of another agent: %v", err)
	}
}
