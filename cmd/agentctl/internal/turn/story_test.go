package turn

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/store"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(ms int) *timestamppb.Timestamp {
	return timestamppb.New(noon.Add(time.Duration(ms) * time.Millisecond))
}

// told is a story as one text, a line each.
func told(t *registry.Turn) string {
	var b strings.Builder
	for _, l := range History(t, Begun{}) {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// TestStoryOfAReply tells everything in its order.
func TestStoryOfAReply(t *testing.T) {
	tool := func(key string, state registry.StepState, result string) *registry.Step {
		return &registry.Step{
			Kind: registry.StepKind_STEP_KIND_TOOL, Key: key, Name: "bash_exec", Arguments: `{"command":"ls"}`, State: state,
			Result: []byte(result), Duration: durationpb.New(40 * time.Millisecond), RecordedAt: at(900),
		}
	}
	got := told(&registry.Turn{
		AgentId: "a1", InboxId: 17, Key: "u:17:h", ThreadId: "threads/main", Source: "external:x:y:dm:s:p",
		State: registry.TurnState_TURN_STATE_DONE, Fate: registry.Fate_FATE_REPLIED, InboundEventId: 3, ReplyEventId: 9,
		ErrorAttempts: 2, CrashAttempts: 2, Error: "429 slow down", QueuedAt: at(0), ClaimedAt: at(12), FinishedAt: at(1500),
		Steps: []*registry.Step{
			{
				Kind: registry.StepKind_STEP_KIND_MODEL, Key: "model:1", Name: "p/m", Duration: durationpb.New(700 * time.Millisecond), RecordedAt: at(800),
				Usage: &registry.Usage{Input: 10, Output: 5, CachedInput: 4},
			},
			tool("tool:1:1", registry.StepState_STEP_STATE_DONE, `{"stdout":"","stderr":"","exitCode":0}`),
			tool("tool:1:2", registry.StepState_STEP_STATE_DONE, `{"stdout":"","stderr":"no","exitCode":2}`),
			tool("tool:1:3", registry.StepState_STEP_STATE_IN_DOUBT, `{"error":"server web: it took too long; outcome unknown"}`),
			tool("tool:1:4", registry.StepState_STEP_STATE_DONE, `{"error":"timed out"}`),
			tool("tool:1:5", registry.StepState_STEP_STATE_INTENT, ""),
		},
		Delivery: &registry.Delivery{State: registry.DeliveryState_DELIVERY_STATE_SENT, Channel: "xgw", Attempts: 2, ProviderId: "m1", MaybeDuplicate: true, UpdatedAt: at(1600)},
	})
	want := `pushed by external:x:y:dm:s:p as message 17 of a1 on 2026-11-20 (times are UTC)
run id u:17:h
belongs to the conversation threads/main
claimed by a runner, 12ms after it was pushed
recorded in the conversation as event 3
model:1: model p/m answered in 700ms, 10 tokens in, 5 out (4 from its cache)
tool:1:1: tool bash_exec {"command":"ls"}: ok in 40ms
tool:1:2: tool bash_exec {"command":"ls"}: exit code 2 in 40ms
tool:1:3: tool bash_exec {"command":"ls"}: in doubt: server web: it took too long; outcome unknown. It may have run, and was not run again (window A)
tool:1:4: tool bash_exec {"command":"ls"}: failed: timed out in 40ms
tool:1:5: tool bash_exec {"command":"ls"}: begun, no result recorded yet
2 model tries failed: 429 slow down
claimed 2 times without progress: 1 runner died while working on it
replied: event 9 of the conversation, 1.5s after it was pushed
delivery by xgw: sent as m1 after 2 tries
maybe sent twice: an earlier send may have left before its record was on disk (window B)
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestStoryEnds: every fate and every state has a sentence, with what to do (S0-80).
func TestStoryEnds(t *testing.T) {
	for _, c := range []struct {
		turn *registry.Turn
		want string
	}{
		{&registry.Turn{Fate: registry.Fate_FATE_DEAD, Error: "no such model", AgentId: "a1", InboxId: 4}, "dead: no such model\nto try again: agentctl dlq retry a1 t:4"},
		{&registry.Turn{Fate: registry.Fate_FATE_DEAD, Resolved: "dropped"}, "taken off the dead letters: dropped"},
		{&registry.Turn{Fate: registry.Fate_FATE_SILENT}, "chose to say nothing"},
		{&registry.Turn{Fate: registry.Fate_FATE_MERGED}, "together with another message"},
		{&registry.Turn{Fate: registry.Fate_FATE_ABORTED, Error: "by hand"}, "aborted: by hand"},
		{&registry.Turn{Fate: registry.Fate_FATE_NOT_A_MESSAGE}, "not a message"},
		{&registry.Turn{State: registry.TurnState_TURN_STATE_QUEUED, AgentId: "a1"}, "waiting for a runner; is the agent started? ('agentctl status a1')"},
		{&registry.Turn{State: registry.TurnState_TURN_STATE_CLAIMED}, "under way. If the runner dies now, a model answer that was not recorded is asked for again (window C)"},
		{&registry.Turn{State: registry.TurnState_TURN_STATE_WAITING, NextAt: at(2000)}, "waiting for the next try, next try at 12:00:02"},
	} {
		if got := told(c.turn); !strings.Contains(got, c.want) {
			t.Errorf("got\n%s\nwant %q in it", got, c.want)
		}
	}
	for state, want := range map[registry.DeliveryState]string{
		registry.DeliveryState_DELIVERY_STATE_PENDING: "not sent yet, 3 tries so far: refused",
		registry.DeliveryState_DELIVERY_STATE_SENDING: "it may leave twice (window B)",
		registry.DeliveryState_DELIVERY_STATE_DEAD:    "dead after 3 tries: refused\nto try again: agentctl dlq retry a1 d:threads/main:9",
		registry.DeliveryState_DELIVERY_STATE_SKIPPED: "delivery: not sent: refused",
	} {
		got := told(&registry.Turn{Fate: registry.Fate_FATE_REPLIED, Delivery: &registry.Delivery{
			AgentId: "a1", ThreadId: "threads/main", EventId: 9,
			State: state, Attempts: 3, Error: "refused",
		}})
		if !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s\nwant %q in it", state, got, want)
		}
	}
}

// Of a message in parts the history says which were sent, whatever becomes of the rest.
func TestStoryOfParts(t *testing.T) {
	for state, want := range map[registry.DeliveryState]string{
		registry.DeliveryState_DELIVERY_STATE_PENDING: "delivery by tg: 2 parts sent as 41, 42\nthe rest of it: not sent yet, 1 try so far: busy",
		registry.DeliveryState_DELIVERY_STATE_DEAD:    "delivery by tg: 2 parts sent as 41, 42\nthe rest of it: dead after 1 try: busy",
		registry.DeliveryState_DELIVERY_STATE_SENT:    "delivery by tg: sent as 41, 42 after 1 try",
	} {
		d := &registry.Delivery{Channel: "tg", State: state, Attempts: 1, Error: "busy", Parts: 2, ProviderId: "41, 42"}
		turn := &registry.Turn{Fate: registry.Fate_FATE_REPLIED, Delivery: d}
		if got := told(turn); !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s\nwant %q in it", state, got, want)
		}
		if got := full(turn, Begun{}).Delivery.Parts; got != 2 {
			t.Errorf("%s: %d parts for programs", state, got)
		}
	}
}

// F1, H2: each attempt has its time, class and error, between the steps it came between; what
// is waited for is shown with its cause and the time left.
func TestStoryOfAttempts(t *testing.T) {
	waits := &registry.Turn{
		State: registry.TurnState_TURN_STATE_WAITING, QueuedAt: at(0), NextAt: timestamppb.New(time.Now().Add(12 * time.Second)),
		Error: "provider failed (503): work: overloaded", ErrorAttempts: 1,
		Steps: []*registry.Step{{Kind: registry.StepKind_STEP_KIND_MODEL, Key: "model:1", Name: "p/m", RecordedAt: at(2000)}},
		Attempts: []*registry.Attempt{
			{N: 1, At: at(1000), Class: "answer broke off", Error: "answer broke off: work: the connection was lost", Counted: true, Wait: durationpb.New(2 * time.Second)},
			{N: 2, At: at(3000), Class: store.ClassCrash, Error: "the process ended", Counted: true},
			{N: 9, At: at(4000), Class: "provider failed", Error: "provider failed (503): work: overloaded", Wait: durationpb.New(30 * time.Second)},
		},
	}
	got := told(waits)
	for _, want := range []string{
		"attempt 1 failed: answer broke off: work: the connection was lost, next try after 2.0s\nmodel:1:",
		"attempt 2 ended: the process ended\nattempts 3 to 8 are not kept\n",
		"attempt 9 failed: provider failed (503): work: overloaded, next try after 30.0s (costs no try)\n",
		"the model provider work is not available (503): overloaded; next try in 12 s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	if strings.Contains(got, "model try failed") {
		t.Errorf("told twice:\n%s", got)
	}
	if a := full(waits, Begun{}).Attempts; len(a) != 3 || a[2].N != 9 || a[2].Counted || a[2].WaitMS != 30_000 || a[2].At == nil || a[0].Class != "answer broke off" {
		t.Errorf("%+v", a)
	}
}

// What others wrote cannot draw on the terminal, however long it is.
func TestStoryIsHarmless(t *testing.T) {
	got := told(&registry.Turn{Steps: []*registry.Step{{
		Kind: registry.StepKind_STEP_KIND_TOOL, State: registry.StepState_STEP_STATE_DONE,
		Arguments: "\x1b[2J" + strings.Repeat("x", 10_000), Result: []byte("\x07"),
	}}})
	if strings.ContainsAny(got, "\x1b\x07") || len(got) > 1000 {
		t.Errorf("%d bytes: %.300q", len(got), got)
	}
}

// Calls of a program that runs its own tools: begun, failed, in doubt, answered.
func TestStoryOfAProgram(t *testing.T) {
	call := func(key string, state registry.StepState, result string) *registry.Step {
		return &registry.Step{
			Kind: registry.StepKind_STEP_KIND_MODEL, Key: key, Name: "pai/p/m", Class: registry.ToolClass_TOOL_CLASS_EFFECT, State: state,
			Result: []byte(result), Duration: durationpb.New(2 * time.Second), RecordedAt: at(900), Usage: &registry.Usage{},
		}
	}
	got := told(&registry.Turn{
		AgentId: "a1", InboxId: 1, Key: "u:1:h", ThreadId: "threads/main", State: registry.TurnState_TURN_STATE_CLAIMED, QueuedAt: at(0), ClaimedAt: at(12),
		Steps: []*registry.Step{
			call("pai:1", registry.StepState_STEP_STATE_DONE, `{"text":"","error":"429 slow down"}`),
			call("pai:2", registry.StepState_STEP_STATE_DONE, `{"text":"hello"}`),
			call("pai:3", registry.StepState_STEP_STATE_IN_DOUBT, `{"error":"x"}`),
			call("pai:4", registry.StepState_STEP_STATE_INTENT, ""),
		},
	})
	for _, line := range []string{
		"pai:1: program pai/p/m had no answer: 429 slow down\n",
		"pai:2: program pai/p/m answered in 2.0s; it reports no tokens\n",
		"pai:3: program pai/p/m is in doubt. It was interrupted in the middle, and was not called again\n",
		"pai:4: program pai/p/m was called, no end recorded yet\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is not in\n%s", line, got)
		}
	}
}

// S3-103: a voice message that was made into text has a line, and one that was not says why.
func TestStoryOfTranscripts(t *testing.T) {
	step := func(n string, state registry.StepState, result string, failed bool) *registry.Step {
		return &registry.Step{
			Kind: registry.StepKind_STEP_KIND_TRANSCRIPT, Key: "transcribe:" + n, Name: "ears/whisper-1", State: state, Result: []byte(result), IsError: failed,
			Arguments: `{"event":3,"sha256":"ab","path":"inbox/ab/voice.ogg"}`, Duration: durationpb.New(1200 * time.Millisecond), RecordedAt: at(900),
		}
	}
	erased := step("4", registry.StepState_STEP_STATE_DONE, "", false)
	erased.Arguments = ""
	got := told(&registry.Turn{AgentId: "a1", InboxId: 17, State: registry.TurnState_TURN_STATE_CLAIMED, QueuedAt: at(0), Steps: []*registry.Step{
		step("1", registry.StepState_STEP_STATE_DONE, `{"bytes":13}`, false), step("2", registry.StepState_STEP_STATE_DONE, `{"bytes":0,"error":"key refused: ears: no"}`, true),
		step("3", registry.StepState_STEP_STATE_INTENT, "", false), erased,
	}})
	for _, want := range []string{
		"transcribe:1: transcript of inbox/ab/voice.ogg: ears/whisper-1 made 13 bytes of text in 1.2s\n",
		"transcribe:2: transcript of inbox/ab/voice.ogg: ears/whisper-1 failed in 1.2s: key refused: ears: no\n",
		"transcribe:3: transcript of inbox/ab/voice.ogg: begun by ears/whisper-1, no result recorded yet\n",
		"transcribe:4: transcript: ears/whisper-1 made 0 bytes of text in 1.2s\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// Messages that were answered together name each other.
func TestStoryOfMessagesTogether(t *testing.T) {
	of := func(id string) string { return "0e0e0e0e-0000-4000-8000-000000000000:" + id + ":0123456789abcdef" }
	leader := &registry.Turn{
		AgentId: "a1", InboxId: 17, Key: of("17"), State: registry.TurnState_TURN_STATE_DONE, Fate: registry.Fate_FATE_REPLIED, QueuedAt: at(0),
		Steps: []*registry.Step{{
			Kind: registry.StepKind_STEP_KIND_STEER, Key: "steer:1", State: registry.StepState_STEP_STATE_DONE,
			Result: []byte(`{"messages":[{"key":"` + of("18") + `","inbox_id":18},{"key":"` + of("20") + `","inbox_id":20}]}`),
		}},
	}
	if got := told(leader); !strings.Contains(got, "steer:1: messages 18, 20 joined here, and are answered with this one\n") {
		t.Errorf("the leader:\n%s", got)
	}
	if a := full(leader, Begun{}); len(a.Joined) != 2 || a.Joined[1] != (Member{of("20"), 20}) {
		t.Errorf("for programs: %+v", a.Joined)
	}
	member := &registry.Turn{AgentId: "a1", InboxId: 18, Key: of("18"), Leader: of("17"), State: registry.TurnState_TURN_STATE_DONE, Fate: registry.Fate_FATE_MERGED, QueuedAt: at(0)}
	if got := told(member); !strings.Contains(got, "answered together with message 17\n") || !strings.Contains(got, "agentctl explain a1 "+of("17")+"\n") {
		t.Errorf("the member:\n%s", got)
	}
	if a := full(member, Begun{}); a.Leader != of("17") {
		t.Errorf("for programs: %+v", a)
	}
	member.Fate, member.State = registry.Fate_FATE_UNSPECIFIED, registry.TurnState_TURN_STATE_CLAIMED
	if got := told(member); !strings.Contains(got, "joined the turn of message 17\n") {
		t.Errorf("under way:\n%s", got)
	}
}

// TestStoryOfARoute tells what was decided with the push, and by what.
func TestStoryOfARoute(t *testing.T) {
	turn := &registry.Turn{
		AgentId: "a1", InboxId: 1, Source: "external:telegram:tg:dm:7:7", Key: "k", ThreadId: "threads/peers/tg-7",
		Account: "tg", ProviderId: "9001", SessionKey: "agent:a1:telegram:tg:dm:7", BindingRevision: 3,
	}
	want := "received by tg (message 9001)\nrouted to agent:a1:telegram:tg:dm:7 by revision 3 of the bindings\npushed by external:telegram:tg:dm:7:7 as message 1 of a1"
	if got := told(turn); !strings.HasPrefix(got, want) {
		t.Errorf("it does not begin with %q:\n%s", want, got)
	}
	turn.Account, turn.BindingRevision = "", 0
	if got := told(turn); strings.Contains(got, "received by") || !strings.Contains(got, "session agent:a1:telegram:tg:dm:7, decided with its push\n") {
		t.Errorf("named by its sender:\n%s", got)
	}
	turn.Command = &registry.ChatCommand{Name: "model", Args: "work/m\n2"}
	if got := told(turn); !strings.Contains(got, "is the chat command /model work/m") {
		t.Errorf("a command:\n%s", got)
	}
}

// S2-50: a call is shown by its summary, with what is known about how it was made.
func TestHistoryOfCalls(t *testing.T) {
	call := func(key, summary string, class registry.ToolClass, state registry.StepState, result string) *registry.Step {
		return &registry.Step{
			Kind: registry.StepKind_STEP_KIND_TOOL, Key: key, Name: "t", Arguments: "{}", Summary: summary, Class: class, State: state,
			Result: []byte(result), Duration: durationpb.New(40 * time.Millisecond), RecordedAt: at(900),
		}
	}
	const read, effect = registry.ToolClass_TOOL_CLASS_READ, registry.ToolClass_TOOL_CLASS_EFFECT
	const done, intent = registry.StepState_STEP_STATE_DONE, registry.StepState_STEP_STATE_INTENT
	page := call("tool:1:2", "web_fetch https://example.com", read, done, `{"text":"a\n[… 9,000 characters left out; complete output: .output/web-1.txt (read with offset) …]\nz"}`)
	page.External = true
	made := call("tool:1:4", "exec make all", effect, done, `{"stdout":"a\n[… 9,000 characters left out; complete output: .output/exec-2.txt (read with offset) …]\nz","stderr":"","exitCode":0,"timedOut":false,"truncated":true,"spill":"/w/.output/output-a.txt","complete_output":".output/exec-2.txt"}`)
	asked := call("tool:1:5", "http_request", effect, done, `{"url":"https://example.com","status":200,"complete_output":".output/http_request-3.txt","body":"complete output: /etc/passwd"}`)
	logged := call("tool:1:6", "exec make log", effect, done, `{"stdout":"","stderr":"","exitCode":0,"truncated":true,"spill":"/w/.output/p-1.log","complete_output":".output/p-1.log"}`)
	forged := call("tool:1:7", "exec cat", effect, done, `{"text":"complete output: /etc/passwd"}`)
	asks := call("tool:2:2", "exec git push", effect, intent, "")
	asks.Asks = true
	var b strings.Builder
	for _, l := range History(&registry.Turn{Key: "u:17:h", State: registry.TurnState_TURN_STATE_CLAIMED, Steps: []*registry.Step{
		call("tool:1:1", "read notes.md:1-200", read, done, `{"text":"x"}`), page,
		call("tool:1:3", "exec make", effect, done, `{"exitCode":0,"stdout":"","spill":".output/exec-1.txt"}`),
		made, asked, logged, forged,
		call("tool:2:1", "read a", read, intent, ""), asks,
		call("tool:2:3", "exec rm x", effect, intent, ""),
	}}, Begun{waits: []wait{{Step: "tool:2:2", Kind: "approval", ID: "ap-1", Reason: "it leaves the sandbox", State: "pending"}}}) {
		b.WriteString(l.Text + "\n")
	}
	for _, want := range []string{
		"tool:1:1: read notes.md:1-200 (read): answered {\"text\":\"x\"} in 40ms\nit ran together with tool:1:2\n",
		"it ran together with tool:1:1\nits complete output is in .output/web-1.txt of the working directory\nits result is text from outside\n",
		"tool:1:3: exec make (effect): ok in 40ms\nits complete output is in .output/exec-1.txt",
		"tool:1:4: exec make all (effect): ok in 40ms\nits complete output is in .output/exec-2.txt of the working directory\nwhat it printed above the cap of the sandbox is in /w/.output/output-a.txt\n",
		"its complete output is in .output/http_request-3.txt of the working directory\ntool:1:6",
		"its complete output is in .output/p-1.log of the working directory\ntool:1:7",
		"complete output: /etc/passwd\"} in 40ms\ntool:2:1",
		"tool:2:1: read a (read): begun, no result recorded yet. If the runner dies now, it is run again",
		"tool:2:2: exec git push (effect): begun, no result recorded yet. If the runner dies before there is an answer, the same question waits",
		"not run again\napproval ap-1 (it leaves the sandbox): pending\n",
		"tool:2:3: exec rm x (effect): begun, no result recorded yet. If the runner dies now, it is in doubt and is not run again (window A)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", b.String(), want)
		}
	}
}

// What a call has left in the background, with its end, and how long a person was waited for.
func TestBegan(t *testing.T) {
	begin := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	end := timestamppb.New(begin.Add(4*time.Minute + 12*time.Second))
	for _, c := range []struct {
		state registry.ProcessState
		ended *timestamppb.Timestamp
		want  string
	}{
		{registry.ProcessState_PROCESS_STATE_RUNNING, nil, "it runs since 2026-11-22 10:00:00"},
		{registry.ProcessState_PROCESS_STATE_EXITED, end, "ended with exit code 3 after 4m12s"},
		{registry.ProcessState_PROCESS_STATE_KILLED, end, "was ended by a call, by a person or for its age after 4m12s"},
		{registry.ProcessState_PROCESS_STATE_LOST, end, "was ended by a restart after 4m12s"},
		{99, end, "its state is not known to this program"},
	} {
		if got := processEnd(&registry.Process{State: c.state, Exit: 3, StartedAt: timestamppb.New(begin), EndedAt: c.ended}); got != c.want {
			t.Errorf("%v: %q, want %q", c.state, got, c.want)
		}
	}
	for _, c := range []struct {
		wait wait
		to   *timestamppb.Timestamp
		want string
	}{
		{wait{Kind: "approval", ID: "ap-1", Reason: "r", State: "used", Decision: "once", By: "owner"}, end, "approval ap-1 (r): approved, once by owner, it waited 4m12s"},
		{wait{Kind: "question", ID: "q-1", State: "pending"}, nil, "question q-1: pending"},
	} {
		if got := waitOf(c.wait, timestamppb.New(begin), c.to).line(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// What was sent before the reply is shown with it: together, as long as nothing went wrong.
func TestHistoryOfBlocks(t *testing.T) {
	delivery := func(id string, tries int32) *registry.Delivery {
		return &registry.Delivery{State: registry.DeliveryState_DELIVERY_STATE_SENT, Channel: "tg", ProviderId: id, Attempts: tries, UpdatedAt: at(10)}
	}
	turn := &registry.Turn{Fate: registry.Fate_FATE_REPLIED, Delivery: delivery("5515", 1)}
	var b strings.Builder
	for _, l := range History(turn, Begun{}, delivery("5511", 1), delivery("5512", 1), delivery("5513", 2), delivery("5514", 1)) {
		b.WriteString(l.Text + "\n")
	}
	if want := "delivery by tg: sent as 5511, 5512\ndelivery by tg: sent as 5513 after 2 tries\ndelivery by tg: sent as 5514, 5515\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got\n%s\nwant at its end\n%s", b.String(), want)
	}
}

// S2-50: a call that had begun when a runner died was run again, where it may be; what came after it and what was recorded
// before was not.
func TestRanAgain(t *testing.T) {
	step := func(kind registry.StepKind, key string, class registry.ToolClass, ms int) *registry.Step {
		return &registry.Step{Kind: kind, Key: key, Summary: "s", Class: class, State: registry.StepState_STEP_STATE_DONE, Result: []byte(`{"text":"x"}`), RecordedAt: at(ms)}
	}
	const tool, read, effect = registry.StepKind_STEP_KIND_TOOL, registry.ToolClass_TOOL_CLASS_READ, registry.ToolClass_TOOL_CLASS_EFFECT
	turn := &registry.Turn{
		Attempts: []*registry.Attempt{{N: 1, At: at(500), Class: store.ClassCrash}},
		Steps: []*registry.Step{
			step(registry.StepKind_STEP_KIND_MODEL, "model:1", 0, 100), step(tool, "tool:1:1", effect, 200),
			step(tool, "tool:1:2", read, 700), step(tool, "tool:1:3", read, 700), step(tool, "tool:1:4", effect, 800), step(tool, "tool:1:5", read, 900),
		},
	}
	got := full(turn, Begun{})
	for n, want := range []string{"", "", runAgain, runAgain, "", ""} {
		if s := got.Steps[n]; s.Recovery != want {
			t.Errorf("%s: %q, want %q", s.Key, s.Recovery, want)
		}
	}
	if got := told(turn); strings.Count(got, "and was run again: a call of class read may be repeated\n") != 2 {
		t.Errorf("in words:\n%s", got)
	}
	turn.Steps[0].RecordedAt = at(600) // no call was journaled at the time
	if got := full(turn, Begun{}); got.Steps[2].Recovery != "" {
		t.Error("a call of a later answer was run again")
	}
}
