package turn_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// notes are the registry's side of digests, and the place in which they are made: after the
// turn, when the test says so.
type notes struct {
	*journal
	since     int64 // digests that were committed since the claim
	committed []*pb.RecordCompactionRequest
	began     []func()
	canceled  int
}

func (*notes) PeekEvents(context.Context, *pb.PeekEventsRequest, ...grpc.CallOption) (*pb.PeekEventsResponse, error) {
	return &pb.PeekEventsResponse{Events: []*pb.Event{{Id: 7, Source: "external:tui:tui-main:dm:s1:alice", Type: "message", Content: `{"text":"hi"}`}}}, nil
}

func (*notes) ReadAgentFile(context.Context, *pb.ReadAgentFileRequest, ...grpc.CallOption) (*pb.ReadAgentFileResponse, error) {
	return &pb.ReadAgentFileResponse{}, nil
}

func (n *notes) GetMemory(context.Context, *pb.GetMemoryRequest, ...grpc.CallOption) (*pb.GetMemoryResponse, error) {
	return &pb.GetMemoryResponse{Memory: []*pb.MemoryState{{Layer: pb.MemoryLayer_MEMORY_LAYER_THREAD, Compactions: n.since}}}, nil
}

func (n *notes) RecordCompaction(_ context.Context, in *pb.RecordCompactionRequest, _ ...grpc.CallOption) (*pb.RecordCompactionResponse, error) {
	n.committed = append(n.committed, in)
	return &pb.RecordCompactionResponse{}, nil
}

// Begin implements turn.Background.
func (n *notes) Begin(ctx context.Context, work func(context.Context, func())) {
	n.began = append(n.began, func() { work(ctx, func() {}) })
}

func (n *notes) Cancel() {
	if len(n.began) == 0 {
		n.canceled++
	}
}

// A digest that is due follows the turn: it begins when the reply is committed, is made of
// what was said up to it, and is no step of the turn. Whatever fails it, the turn stands.
func TestDigestFollowsTheTurn(t *testing.T) {
	digest := func(req model.Request) bool { return strings.HasPrefix(req.System, "You keep the memory") }
	broken := errors.New("broken")
	for _, c := range []struct {
		name                            string
		fate                            pb.Fate
		reply                           string
		answer                          func() (model.Response, modelcall.Try)
		since                           int64
		began, calls, committed, failed int
	}{
		{"made", pb.Fate_FATE_REPLIED, "hello", func() (model.Response, modelcall.Try) { return say("what was said") }, 0, 1, 2, 1, 0},
		{"of a silent turn", pb.Fate_FATE_SILENT, "NO_REPLY", func() (model.Response, modelcall.Try) { return say("what was said") }, 0, 1, 2, 1, 0},
		{"made meanwhile", pb.Fate_FATE_REPLIED, "hello", nil, 1, 1, 1, 0, 0},
		{"failed", pb.Fate_FATE_REPLIED, "hello", func() (model.Response, modelcall.Try) { return fails(model.Unavailable, 0) }, 0, 1, 2, 0, 1},
		{"panics", pb.Fate_FATE_REPLIED, "hello", func() (model.Response, modelcall.Try) { panic(broken) }, 0, 1, 2, 0, 1},
		{"not after a dead turn", pb.Fate_FATE_DEAD, "", nil, 0, 0, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "hi")
			b.journal.config.Compaction = &pb.CompactionConfig{AfterTurns: 1}
			b.journal.config.ContextWindow = 10_000
			n := &notes{journal: b.journal, since: c.since}
			failures := &memory.Failures{}
			b.memory = &memory.Registry{Threads: n, Files: n, Journal: n, Failures: failures}
			b.place.later = n
			b.llm.reply = func(_ context.Context, _, _ int, req model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
				switch {
				case digest(req) && b.journal.fin == nil:
					t.Error("asked for before the reply was committed")
					fallthrough
				case digest(req):
					return c.answer()
				case c.reply == "":
					return fails(model.Auth, 0)
				}
				return say(c.reply)
			}
			r, err := b.run(t.Context())
			if err != nil || r.Fate != c.fate || len(n.began) != c.began || len(n.committed) != 0 || b.llm.calls != 1 {
				t.Fatalf("%v, %v; %d digests begun, %d committed, %d calls", r.Fate, err, len(n.began), len(n.committed), b.llm.calls)
			}
			for _, work := range n.began {
				work()
			}
			if b.llm.calls != c.calls || len(n.committed) != c.committed {
				t.Fatalf("%d calls, %d committed", b.llm.calls, len(n.committed))
			}
			if c.committed > 0 {
				if in := n.committed[0]; in.GetSeq() != 0 || in.GetKey() != "k" || in.GetInboxId() != 7 || in.GetDigestedId() != 7 || len(in.GetLogs()) != 1 {
					t.Errorf("committed %v", in)
				}
			}
			for range c.failed { // it is noted: after the second the next turn waits
				if count, _ := failures.Failed("a1", "", 0, "fake/m", 1, "again"); count != 2 {
					t.Errorf("%d failures", count)
				}
			}
			if warned := slices.ContainsFunc(b.journal.logs, func(l string) bool { return strings.Contains(l, "not digested") }); warned != (c.name == "failed") {
				t.Errorf("the log is %q", b.journal.logs)
			}
			if b.panics != 0 || b.journal.fates != 1 {
				t.Errorf("%d panics of the turn, %d fates", b.panics, b.journal.fates)
			}
		})
	}
}

// A turn whose end the journal does not take gives the place of its digest up.
func TestDigestNeedsAnEnd(t *testing.T) {
	b := newBench(t, "hi")
	b.journal.config.Compaction = &pb.CompactionConfig{AfterTurns: 1}
	b.journal.config.ContextWindow = 10_000
	n := &notes{journal: b.journal}
	b.memory = &memory.Registry{Threads: n, Files: n, Journal: n, Failures: &memory.Failures{}}
	b.place.later = n
	b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
		return say("hello")
	}
	b.journal.refuse = func(call string, _ any) error {
		if call == "finish" {
			b.journal.lost = true
		}
		return nil
	}
	if _, err := b.run(t.Context()); !errors.Is(err, turn.ErrLost) || n.canceled != 1 || len(n.began) != 0 {
		t.Errorf("%v, %d canceled, %d begun", err, n.canceled, len(n.began))
	}
}
