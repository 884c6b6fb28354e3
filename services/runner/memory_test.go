package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// recorder counts what a provider was asked from a point on.
type recorder struct {
	script *modeltest.Server
	from   int
}

func (r *recorder) reset() { r.from = len(r.script.Requests()) }

// digests are the requests for a digest since the reset, replies the others.
func (r *recorder) digests() []modeltest.Chat { return r.chats(true) }
func (r *recorder) replies() []modeltest.Chat { return r.chats(false) }

func (r *recorder) chats(digest bool) (out []modeltest.Chat) {
	for _, q := range r.script.Requests()[r.from:] {
		if q.Chat.WantsDigest() == digest {
			out = append(out, q.Chat)
		}
	}
	return out
}

// settled waits until no digest follows a turn any more.
func settled(t *testing.T, w *server.World) {
	t.Helper()
	for {
		info, err := w.Runner.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if info.GetDigestsActive() == 0 {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// sayDigested sends a message and waits for its end and for the digest that follows it.
func sayDigested(t *testing.T, w *server.World, peer, text string) *registrypb.Turn {
	t.Helper()
	turn := w.Say(t, "a1", server.Peer(peer), text)
	settled(t, w)
	return turn
}

func memoryFile(t *testing.T, w *server.World, agent, name string) string {
	t.Helper()
	f, err := w.Agents.ReadAgentFile(t.Context(), &registrypb.ReadAgentFileRequest{AgentId: agent, Name: "memory/" + name})
	if err != nil {
		t.Fatal(err)
	}
	return string(f.GetContent())
}

func agentLog(t *testing.T, w *server.World, agent string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Home, "agents", agent, "logs", "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	bobThread = "threads/peers/main-bob"
	bobFile   = "thread-threads%2Fpeers%2Fmain-bob.md"
)

// S0-109, S0-115, S0-116, S0-117: what was said in turn 3 of 200 is known at the
// end, by each of the three layers alone; nothing of the thread is gone.
func TestFactsSurviveTwoHundredTurns(t *testing.T) {
	w, script := play(t, modeltest.FactModel())
	w.Create(t, "a1", "memory:\n  share: true")
	r := &recorder{script: script}
	for n := 1; n <= 200; n++ {
		text := fmt.Sprintf("message %d about nothing", n)
		if n == 3 {
			text = "the safe opens with fact-4711"
		}
		if turn := sayDigested(t, w, "bob", text); turn.GetFate() != replied {
			t.Fatalf("turn %d: %v", n, turn)
		}
	}
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "recall"), replied, "I know: fact-4711")
	levels := map[string]int{}
	for _, c := range r.digests() {
		for _, l := range []string{"one conversation", "one person or agent", "the agent's own work"} {
			if strings.Contains(c.Messages[0].Content, l) {
				levels[l]++
			}
		}
	}
	if levels["one conversation"] != 20 || levels["one person or agent"] != 4 || levels["the agent's own work"] != 1 {
		t.Errorf("digests: %v, want 20, 4 and 1", levels)
	}
	if n := len(w.Events(t, "a1", bobThread, "type = 'message'")); n != 402 {
		t.Errorf("the thread holds %d messages, want 402", n)
	}
	if n := len(w.Events(t, "a1", bobThread, "subtype = 'decision'")); n != 25 { // S0-80
		t.Errorf("%d decisions, want 25", n)
	}
	// Each layer alone.
	all := []string{"agent.md", "user-main-bob.md", bobFile}
	kept := map[string]string{}
	for _, name := range all {
		kept[name] = memoryFile(t, w, "a1", name)
	}
	for _, alone := range all {
		for _, name := range all {
			text := ""
			if name == alone {
				text = kept[name]
			}
			if _, err := w.Agents.WriteAgentFile(t.Context(), &registrypb.WriteAgentFileRequest{AgentId: "a1", Name: "memory/" + name, Content: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		// A person may ask beside the conversation, so that the answers above are
		// not the memory.
		c, err := w.Runner.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: bobThread, AtEvent: 300})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range c.GetParts() {
			found = found || p.GetRole() == "system" && strings.Contains(p.GetText(), "fact-4711")
		}
		if !found {
			t.Errorf("%s alone does not know it: %q", alone, kept[alone])
		}
	}
	fmt.Fprintf(os.Stdout, "memory turns=200 digests=%d calls=%d\n", len(r.digests()), len(r.digests())+len(r.replies()))
}

// S0-113: nothing at 79 % of the budget; a digest after the answer at 81 %, and before it
// when the messages do not fit. Its input holds the old messages (S0-114); the newest 4096
// tokens stay raw.
func TestThreshold(t *testing.T) {
	const budget = 20000 - 1000 - 512
	for _, c := range []struct {
		percent, digests int
		before           bool
	}{{79, 0, false}, {81, 1, false}, {101, 1, true}} {
		t.Run(fmt.Sprint(c.percent), func(t *testing.T) {
			w, script := play(t, modeltest.FactModel())
			w.Create(t, "a1", "context_window: 20000\nmax_output_tokens: 1000")
			r := &recorder{script: script}
			for n := range 4 {
				w.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("part %d fact-%d %s", n, n, strings.Repeat("word ", 2300)))
			}
			now, err := w.Runner.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: bobThread})
			if err != nil {
				t.Fatal(err)
			}
			if now.GetBudget() != budget { // S0-47
				t.Fatalf("budget %d, want %d", now.GetBudget(), budget)
			}
			r.reset()
			fill := budget*int64(c.percent)/100 - now.GetTokens() - model.EstimateTokens("ok")
			want(t, w, sayDigested(t, w, "bob", strings.Repeat("long", int(fill))), replied, "ok")
			d, a := r.digests(), r.replies()
			if len(d) != c.digests || len(a) != 1 {
				t.Fatalf("%d digests and %d answers", len(d), len(a))
			}
			if c.digests == 0 {
				return
			}
			if before := script.Requests()[r.from].Chat.WantsDigest(); before != c.before {
				t.Errorf("a digest before the answer: %v", before)
			}
			if got := modeltest.Facts(d[0].Text()); !slices.Equal(got, []string{"fact-0", "fact-1", "fact-2", "fact-3"}) {
				t.Errorf("the digest was made of %q", got)
			}
			if !c.before {
				r.reset()
				want(t, w, w.Say(t, "a1", server.Peer("bob"), "and"), replied, "ok")
				if a = r.replies(); len(a) != 1 || len(r.digests()) != 0 {
					t.Fatalf("%d answers", len(a))
				}
			}
			raw := int64(0)
			for _, m := range a[0].Messages[1 : len(a[0].Messages)-1] {
				raw += model.EstimateTokens(m.Content)
			}
			switch text := a[0].Text(); {
			case raw > 4096 || strings.Contains(text, "part 1"):
				t.Errorf("%d tokens raw", raw)
			case c.before && (raw < 2500 || !strings.Contains(text, "part 3")):
				t.Errorf("%d tokens raw", raw)
			}
			if !strings.Contains(a[0].Messages[0].Content, "fact-0") {
				t.Error("the digest is not in the prompt")
			}
		})
	}
}

// S0-113: a digest follows the tenth turn, and another ten later; the second digest gets
// the first and the messages since, and nothing before (S0-114). It is no step of the turn.
func TestEveryTenthTurn(t *testing.T) {
	w, script := play(t, modeltest.FactModel())
	w.Create(t, "a1", "")
	r := &recorder{script: script}
	for n := 1; n <= 20; n++ {
		r.reset()
		turn := sayDigested(t, w, "bob", fmt.Sprintf("this is turn %d with fact-%03d", n, n))
		d := r.digests()
		if (len(d) == 1) != (n%10 == 0) || len(d) > 1 {
			t.Fatalf("turn %d: %d digests", n, len(d))
		}
		if steps := turn.GetSteps(); len(steps) != 1 || steps[0].GetKind() != registrypb.StepKind_STEP_KIND_MODEL {
			t.Errorf("journal of turn %d: %v", n, steps)
		}
		if len(d) == 0 {
			continue
		}
		if script.Requests()[r.from].Chat.WantsDigest() {
			t.Errorf("turn %d: the digest came before the answer", n)
		}
		if n == 20 {
			text := d[0].Text()
			if !strings.Contains(text, "still holds: fact-001") || strings.Contains(text, "this is turn 10 ") || !strings.Contains(text, "this is turn 11 ") || !strings.Contains(text, "this is turn 20 ") {
				t.Errorf("the second digest was made of %q", text)
			}
		}
	}
	if n := len(w.Events(t, "a1", bobThread, "subtype = 'decision'")); n != 2 {
		t.Errorf("%d decisions, want 2", n)
	}
}

// S0-119: a digest that fails costs the digest, not the answer; a warning is in
// the log, once, and the next turn asks again.
func TestDigestFails(t *testing.T) {
	digest := func(s modeltest.Step) modeltest.Step {
		return modeltest.Step{Repeat: true, Answer: func(c modeltest.Chat) modeltest.Step {
			if c.WantsDigest() {
				return s
			}
			return modeltest.Say("ok")
		}}
	}
	tooLong := modeltest.Step{Status: 400, Error: &modeltest.APIError{Message: "maximum context length", Code: "context_length_exceeded"}}
	for _, c := range []struct {
		name  string
		step  modeltest.Step
		calls int
	}{
		{"error", modeltest.Fail(500, "broken"), 1},
		{"overflow", tooLong, 2},
		{"empty", modeltest.Step{}, 1},
		{"silent", modeltest.Say("NO_REPLY"), 1},
		{"nonsense", modeltest.Say("?!?! ... 123"), 1},
		{"cut", modeltest.Step{Text: []string{"it began with"}, Finish: "length"}, 1},
		{"endless", modeltest.Say(strings.Repeat("and so on ", 4000)), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, script := play(t, digest(c.step))
			w.Create(t, "a1", "compaction:\n  after_turns: 2")
			r := &recorder{script: script}
			w.Say(t, "a1", server.Peer("bob"), strings.Repeat("word ", 400))
			for range 2 {
				r.reset()
				want(t, w, sayDigested(t, w, "bob", "more"), replied, "ok")
				if n := len(r.digests()); n != c.calls {
					t.Errorf("%d tries of a digest, want %d", n, c.calls)
				}
			}
			if text := memoryFile(t, w, "a1", bobFile); text != "" {
				t.Errorf("memory holds %q", text)
			}
			if log := agentLog(t, w, "a1"); !strings.Contains(log, "WARN") || !strings.Contains(log, "not digested") {
				t.Errorf("agent.log has no warning:\n%s", log)
			}
		})
	}
}

// F3: a digest that fails every time is asked for less and less often, and then once in a
// full interval; the log has two lines of it. One that a person asks for, and one by another
// model, are asked for at once.
func TestFailedDigestsBackOff(t *testing.T) {
	var healthy atomic.Bool
	w, script := play(t, modeltest.Step{Repeat: true, Answer: func(c modeltest.Chat) modeltest.Step {
		if c.WantsDigest() && !healthy.Load() {
			return modeltest.Say("?")
		}
		return modeltest.Say("words of a digest, or of an answer")
	}})
	w.Create(t, "a1", "compaction:\n  after_turns: 8\ncontext:\n  recent_messages: 200")
	r, asked := &recorder{script: script}, []int{}
	const turns = 60
	for n := 1; n <= turns; n++ {
		r.reset()
		sayDigested(t, w, "bob", fmt.Sprint("message ", n))
		if k := len(r.digests()); k > 1 {
			t.Fatalf("turn %d: %d digests", n, k)
		} else if k == 1 {
			asked = append(asked, n)
		}
	}
	if want := []int{8, 9, 11, 15, 23, 31, 39, 47, 55}; !slices.Equal(asked, want) {
		t.Errorf("digests were asked for in the turns %v, want %v", asked, want)
	}
	if log := agentLog(t, w, "a1"); strings.Count(log, "not digested") != 2 || !strings.Contains(log, "not digested 4 times, asked for again every 8 turns") {
		t.Errorf("agent.log:\n%s", log)
	}
	info, err := w.Runner.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if d := info.GetFailingDigests(); len(d) != 1 || d[0].GetAgentId() != "a1" || d[0].GetName() != "memory/"+bobFile || d[0].GetFailures() != 9 || d[0].GetError() == "" {
		t.Errorf("the runner reports %v", d)
	}
	r.reset()
	if _, err := w.Runner.CompactMemory(t.Context(), &runnerpb.CompactMemoryRequest{AgentId: "a1", ThreadId: bobThread}); err == nil || len(r.digests()) != 1 {
		t.Errorf("asked by a person: %v, %d digests", err, len(r.digests()))
	}
	healthy.Store(true)
	for n := 0; memoryFile(t, w, "a1", bobFile) == "" && n < 8; n++ {
		sayDigested(t, w, "bob", "and more")
	}
	if text := memoryFile(t, w, "a1", bobFile); !strings.Contains(text, "words of a digest") {
		t.Errorf("memory holds %q", text)
	}
	if info, err := w.Runner.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{}); err != nil || len(info.GetFailingDigests()) != 0 {
		t.Errorf("the runner still reports %v, %v", info.GetFailingDigests(), err)
	}
}

// A digest that does not fit into one call is made in stages, each with the
// digest of the ones before.
func TestStages(t *testing.T) {
	w, script := play(t)
	refused := false
	script.Push(modeltest.Step{Repeat: true, Answer: func(c modeltest.Chat) modeltest.Step {
		if c.WantsDigest() && !refused {
			refused = true
			return modeltest.Step{Status: 400, Error: &modeltest.APIError{Message: "maximum context length", Code: "context_length_exceeded"}}
		}
		return modeltest.FactModel().Answer(c)
	}})
	w.Create(t, "a1", "compaction:\n  after_turns: 6")
	r := &recorder{script: script}
	for n := range 6 {
		sayDigested(t, w, "bob", fmt.Sprintf("fact-%d %s", n, strings.Repeat("word ", 200)))
	}
	d := r.digests()
	if len(d) < 3 {
		t.Fatalf("%d calls", len(d))
	}
	last := d[len(d)-1].Text()
	if !strings.Contains(last, "still holds: fact-0") || strings.Contains(last, `"fact-0 word`) {
		t.Errorf("the last stage was made of %.300q", last)
	}
	if got := modeltest.Facts(memoryFile(t, w, "a1", bobFile)); len(got) != 6 {
		t.Errorf("memory knows %q", got)
	}
}
