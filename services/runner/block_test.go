package runner_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// paragraph is a text of 64 characters that names a number.
func paragraph(n int) string {
	return fmt.Sprintf("Paragraph %d. %s.", n, strings.Repeat("word ", 9)+"words")[:63] + "."
}

// S2-49, S4-43, S1-46: blocks leave while the model is still writing; the reply is what is left, and those who
// follow the run, wait for it or ask later get the complete text, once.
func TestBlockStreaming(t *testing.T) {
	gate := make(chan struct{})
	p := []string{paragraph(1), paragraph(2), paragraph(3)}
	w, script := play(t,
		modeltest.Step{Text: []string{p[0] + "\n\n" + p[1] + "\n\nPara", strings.TrimPrefix(p[2], "Para")}, Gate: gate},
		modeltest.Say("again"))
	sink := server.NewSink(t)
	w.Create(t, "a1", sink.Config()+"\nreply: {blocks: on, block: {min: 64, max: 200, idle: 60s}}")
	id, err := w.Push(t.Context(), "a1", server.Peer("bob"), "tell me", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := arrived(t, w, sink, "a1", 2); !slices.Equal(got, p[:2]) { // while the model is still writing
		t.Errorf("arrived %q, want %q", got, p[:2])
	}
	close(gate)
	turn := w.Await(t, "a1", id)
	if got := arrived(t, w, sink, "a1", 3); !slices.Equal(got, p) {
		t.Errorf("arrived %q, want %q", got, p)
	}
	if turn.GetFate() != replied || w.Reply(t, turn) != p[2] {
		t.Errorf("%v with %q", turn.GetFate(), w.Reply(t, turn))
	}
	whole := strings.Join(p, "\n\n")
	end, err := w.Runner.WaitRun(t.Context(), &runnerpb.WaitRunRequest{AgentId: "a1", RunId: turn.GetKey()})
	if err != nil || end.GetText() != whole || len(end.GetPayloads()) != 1 {
		t.Errorf("the run ended with %v, %v", end, err)
	}
	if r, err := w.Turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: id, WithReply: true}); err != nil || r.GetReply() != whole {
		t.Errorf("the registry answers %q, %v", r.GetReply(), err)
	}
	followed, err := w.Runner.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: turn.GetKey()})
	if err != nil {
		t.Fatal(err)
	}
	var deltas strings.Builder
	for {
		e, err := followed.Recv()
		if err != nil {
			break
		}
		if e.GetStream() == runnerpb.RunStream_RUN_STREAM_ASSISTANT {
			deltas.WriteString(e.GetText())
		}
	}
	if deltas.String() != whole {
		t.Errorf("the stream of the run has %q", deltas.String())
	}
	w.Await(t, "a1", must(w.Push(t.Context(), "a1", server.Peer("bob"), "and now?", "")))
	var own []string
	for _, m := range script.Requests()[1].Chat.Messages {
		if m.Role == "assistant" {
			own = append(own, m.Content)
		}
	}
	if !slices.Equal(own, p) {
		t.Errorf("the next turn reads %q", own)
	}
}

// S4-43: the text before a tool call is a message of its own, and an answer goes on behind its blocks when the
// provider breaks off.
func TestBlocksGoOn(t *testing.T) {
	p := []string{paragraph(1), paragraph(2), paragraph(3)}
	w, script := play(t,
		modeltest.Step{Text: []string{"Let me ", "look."}, ToolCalls: []modeltest.ToolCall{bash("c1", "echo 7")}},
		modeltest.Step{Text: []string{p[0] + "\n\n", p[1] + "\n\n", "Para"}, Cut: true},
		modeltest.Step{Text: []string{p[1] + "\n\n", p[2]}, Match: "no such message"},
		modeltest.Step{Text: []string{p[2]}})
	sink := server.NewSink(t)
	w.Create(t, "a1", sink.Config()+"\nreply: {blocks: on, block: {min: 64, max: 200, idle: 60s}}")
	turn := w.Say(t, "a1", server.Peer("bob"), "tell me")
	if got, want := arrived(t, w, sink, "a1", 4), append([]string{"Let me look."}, p...); !slices.Equal(got, want) {
		t.Errorf("arrived %q, want %q", got, want)
	}
	if turn.GetFate() != replied || w.Reply(t, turn) != p[2] {
		t.Errorf("%v with %q", turn.GetFate(), w.Reply(t, turn))
	}
	last := script.Requests()[2].Chat.Messages
	n := len(last)
	if last[n-1].Role != "system" || last[n-2].Content != p[0]+"\n\n"+p[1]+"\n\n" {
		t.Errorf("the model goes on behind %+v", last[n-2:])
	}
}

// Without a person on a channel there are no blocks: a console follows the run.
func TestNoBlocksForConsoles(t *testing.T) {
	p := paragraph(1) + "\n\n" + paragraph(2)
	w, _ := play(t, modeltest.Say(p))
	w.Create(t, "a1", "reply: {blocks: on, block: {min: 64, max: 64}}")
	turn := w.Say(t, "a1", "external:console:cli:dm:cli:cli", "tell me")
	want(t, w, turn, replied, p)
}

// S4-42: there is a pause within the bounds between the messages of a run, and none before the first.
func TestHumanDelay(t *testing.T) {
	var p []string
	for n := range 5 {
		p = append(p, paragraph(n+1))
	}
	w, _ := play(t, modeltest.Say(strings.Join(p, "\n\n")), modeltest.Say("done"))
	sink := server.NewSink(t)
	w.Create(t, "a1", sink.Config()+"\nreply: {blocks: on, block: {min: 64, max: 80}}\nhuman_delay: {min: 400ms, max: 600ms}")
	w.Say(t, "a1", server.Peer("bob"), "tell me")
	if got := arrived(t, w, sink, "a1", 5); !slices.Equal(got, p) {
		t.Errorf("arrived %q, want %q", got, p)
	}
	w.Say(t, "a1", server.Peer("bob"), "and now?")
	arrived(t, w, sink, "a1", 6)
	list := sink.Arrivals("a1")
	long, most := 0, time.Duration(0)
	for n, a := range list[1:5] {
		gap := a.At.Sub(list[n].At)
		if most = max(most, gap); gap >= 398*time.Millisecond { // the registry counts in milliseconds
			long++
		}
	}
	t.Logf("%d of 4 gaps are long enough, the longest is %.2f times the most that is set", long, float64(most)/float64(600*time.Millisecond))
	if long != 4 { // how much longer they are is the load of the machine
		t.Errorf("%d of 4 gaps are long enough", long)
	}
}

// S4-42: the wall clock is set back between two messages of a run. The second one does not wait until it is where it was.
func TestHumanDelayOfAnotherClock(t *testing.T) {
	gate := make(chan struct{})
	p := []string{paragraph(1), paragraph(2)}
	w, _ := play(t, modeltest.Step{Text: []string{p[0] + "\n\nPara", strings.TrimPrefix(p[1], "Para")}, Gate: gate})
	sink := server.NewSink(t)
	w.Create(t, "a1", sink.Config()+"\nreply: {blocks: on, block: {min: 64, max: 80}}\nhuman_delay: {min: 1ms, max: 2ms}")
	if _, err := w.Push(t.Context(), "a1", server.Peer("bob"), "tell me", ""); err != nil {
		t.Fatal(err)
	}
	arrived(t, w, sink, "a1", 1)
	list, err := filepath.Glob(filepath.Join(w.Home, "agents", "a1", "threads", "peers", "*", "events.db"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	db, err := sql.Open("sqlite", "file:"+list[0]+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "UPDATE x_delivery SET updated_at = updated_at + 3600000"); err != nil {
		t.Fatal(err)
	}
	close(gate)
	if got := arrived(t, w, sink, "a1", 2); !slices.Equal(got, p) {
		t.Errorf("arrived %q", got)
	}
}

// S2-49, S4-43 under P1, over both engines: a runner is killed after a block was journaled. The next one goes
// on behind it: each block is one message of the conversation, and the messages are the answer.
func TestBlocksOutliveRunners(t *testing.T) {
	eachBackend(t, func(t *testing.T, o backendtest.Options) {
		w, socket := socketWorld(t, o)
		v := prey{t, socket, t.TempDir()}
		if err := os.WriteFile(filepath.Join(v.dir, "providers.yaml"), []byte("default: offline\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := w.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: "a1"})
		for key, value := range map[string]string{"reply.blocks": "on", "reply.block.min": "64", "reply.block.max": "80", "pai.provider": "offline"} {
			if err == nil {
				_, err = w.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: "a1", Key: key, Value: value})
			}
		}
		if err == nil {
			_, err = w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"})
		}
		if err != nil {
			t.Fatal(err)
		}
		var p []string
		for n := range 4 {
			p = append(p, paragraph(n+1))
		}
		for kill := range 3 {
			peer := fmt.Sprint("p", kill)
			first := v.start("B1", 1)
			content, err := json.Marshal(map[string]string{"text": "say: " + strings.Join(p, "\n\n")})
			if err != nil {
				t.Fatal(err)
			}
			out, err := w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
				Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
				Events: []*registrypb.NewEvent{{Source: server.Peer(peer), Type: "message", Content: string(content)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			first.dead()
			next := v.start("never", 0)
			turn := w.fate("a1", out.GetEventIds()[0])
			var said []string
			for _, e := range w.events("a1", turn.GetThreadId()) {
				if e.GetSource() == "self" && e.GetType() == "message" {
					said = append(said, server.Text(e))
				}
			}
			if turn.GetFate() != registrypb.Fate_FATE_REPLIED || !slices.Equal(said, p) {
				t.Errorf("kill %d: %v, said %q", kill, turn.GetFate(), said)
			}
			next.stop()
		}
	})
}
