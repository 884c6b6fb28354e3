package turn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// F1: what the registry, or the layer below it, never takes ends the turn at once with that
// as its cause: nothing is paid for again, and no crash is reported.
func TestRefusedByTheJournal(t *testing.T) {
	size := status.Error(codes.ResourceExhausted, "trying to send message larger than max (5000000 vs. 4194304)")
	for _, c := range []struct {
		name, call string
		err        error
		want       string
		calls      int
	}{
		{"reply, cannot be encoded", "finish", status.Error(codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8"), "invalid UTF-8", 3},
		{"reply, refused", "finish", fault.New(codes.InvalidArgument, fault.InvalidArgument, "text: must be less", ""), "text: must be less", 3},
		{"reply, too large", "finish", size, "larger than max", 3},
		{"reply, the registry fails", "finish", fault.New(codes.Internal, fault.Internal, "internal error", ""), "internal error", 3},
		{"step, cannot be encoded", "record", status.Error(codes.Internal, "grpc: error while marshaling: \xff"), "error while marshaling", 1},
		{"step, too large", "record", size, "larger than max", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "hi")
			b.llm.reply = threeRounds
			b.journal.refuse = func(call string, in any) error {
				if fin, ok := in.(*pb.FinishTurnRequest); ok && fin.GetFate() == pb.Fate_FATE_DEAD {
					return nil
				}
				if call == c.call {
					return c.err
				}
				return nil
			}
			r, err := b.run(t.Context())
			if err != nil || r.Fate != pb.Fate_FATE_DEAD {
				t.Fatalf("%v, %v", r.Fate, err)
			}
			fin := b.journal.fin
			if !strings.HasPrefix(fin.GetError(), "internal: ") || !strings.Contains(fin.GetError(), c.want) || !utf8.ValidString(fin.GetError()) || len(fin.GetError()) > 4096 {
				t.Errorf("cause %q", fin.GetError())
			}
			if f := fin.GetFailedTry(); f.GetClass() != "internal" || f.GetCounted() || !strings.Contains(f.GetError(), c.want) {
				t.Errorf("last attempt %v", f)
			}
			if b.llm.calls != c.calls || b.panics != 0 || b.dead != 1 || b.place.alone {
				t.Errorf("%d paid calls, %d panics, dead %d, alone %v", b.llm.calls, b.panics, b.dead, b.place.alone)
			}
		})
	}
}

// F1: when what goes with the end is what cannot be taken, the end goes without it.
func TestRefusedWithItsEnd(t *testing.T) {
	b := newBench(t, "hi")
	b.llm.reply = func(context.Context, int, int, model.Request, func(model.Delta)) (model.Response, modelcall.Try) {
		return say("hello")
	}
	b.journal.refuse = func(_ string, in any) error {
		if fin, ok := in.(*pb.FinishTurnRequest); ok && (len(fin.GetSteps()) > 0 || len(fin.GetLogs()) > 0) {
			return status.Error(codes.Internal, "grpc: error while marshaling")
		}
		return nil
	}
	if r, err := b.run(t.Context()); err != nil || r.Fate != pb.Fate_FATE_DEAD || b.llm.calls != 1 {
		t.Errorf("%v, %v, %d calls", r.Fate, err, b.llm.calls)
	}
}

// F1: what else ends a turn gives it back: the next claim says how, so that it is no crash;
// what has no explanation costs a try, what passes does not.
func TestGivenBack(t *testing.T) {
	passes := fault.New(codes.FailedPrecondition, fault.ReadOnly, "cannot be written", "")
	for _, c := range []struct {
		name, class, want string
		counted           bool
		happens           func() error // instead of the first record
	}{
		{"it passes", "internal", "cannot be written", false, func() error { return passes }},
		{"a panic outside of an attempt", "panic", "the runner's log says what", true, func() error { panic("poison") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "hi")
				b.llm.reply = func(_ context.Context, _, call int, _ model.Request, _ func(model.Delta)) (model.Response, modelcall.Try) {
					if call == 1 {
						return fails(model.Unavailable, time.Second) // which is to be recorded
					}
					return say("hello")
				}
				b.journal.refuse = func(call string, _ any) error {
					if call != "record" {
						return nil
					}
					return c.happens()
				}
				_, err := b.run(t.Context())
				g, ok := errors.AsType[*turn.GivenBack](err)
				if !ok || g.Attempt.GetClass() != c.class || g.Attempt.GetCounted() != c.counted || !strings.Contains(g.Attempt.GetError(), c.want) {
					t.Fatalf("%v", err)
				}
				b.place.back = g.Attempt
				if r, err := b.run(t.Context()); err != nil || r.Fate != pb.Fate_FATE_REPLIED || b.journal.crashes != 0 || b.place.alone {
					t.Errorf("%v, %v, %d crashes, alone %v", r.Fate, err, b.journal.crashes, b.place.alone)
				}
				if got := b.journal.begun[1].GetGivenBack(); got.GetError() != g.Attempt.GetError() {
					t.Errorf("the second claim says %v", got)
				}
			})
		})
	}
}
