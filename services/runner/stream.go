package runner

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/replay"
	"github.com/theclaw/agents/services/runner/internal/run"
)

var streams = map[run.Kind]runnerpb.RunStream{
	run.Lifecycle: runnerpb.RunStream_RUN_STREAM_LIFECYCLE,
	run.Assistant: runnerpb.RunStream_RUN_STREAM_ASSISTANT,
	run.Reasoning: runnerpb.RunStream_RUN_STREAM_REASONING,
	run.Tool:      runnerpb.RunStream_RUN_STREAM_TOOL,

	run.Compaction: runnerpb.RunStream_RUN_STREAM_COMPACTION,
	run.Prompt:     runnerpb.RunStream_RUN_STREAM_PROMPT,
	run.Closed:     runnerpb.RunStream_RUN_STREAM_PROMPT_CLOSED,
}

// StreamRun sends what happens in a run until its end: from memory while it is
// worked on here, from the journal what memory has not, and waits in between. A
// reader sets its own pace and holds up no other.
func (s *Service) StreamRun(req *runnerpb.StreamRunRequest, out grpc.ServerStreamingServer[runnerpb.StreamRunResponse]) error {
	ctx, w := out.Context(), &watch{Service: s, agentID: req.GetAgentId(), runID: req.GetRunId(), seq: req.GetAfterSeq(), out: out}
	for {
		stream, opened := s.find(ctx, w.runID)
		if stream != nil {
			ended, err := w.follow(ctx, stream)
			switch {
			case ended:
				return err
			case errors.Is(err, run.ErrBehind):
				if err := w.catchUp(ctx, stream.First()); err != nil {
					return err
				}
				continue
			case !errors.Is(err, run.ErrClosed):
				return err
			}
		}
		t, err := s.fateOrStream(ctx, w.agentID, w.runID, opened)
		if err != nil {
			return err
		}
		if t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
			return w.replay(ctx, t)
		}
	}
}

// watch is one reader of a run.
type watch struct {
	*Service
	agentID, runID string
	seq            uint64 // all up to it was sent
	out            grpc.ServerStreamingServer[runnerpb.StreamRunResponse]
}

func (w *watch) send(items ...run.Item) error {
	for _, i := range items {
		if err := w.out.Send(toItem(i)); err != nil {
			return err
		}
		w.seq = i.Seq
	}
	return nil
}

// follow sends a stream's items until the run's last one.
func (w *watch) follow(ctx context.Context, stream *run.Stream) (ended bool, err error) {
	for {
		items, err := stream.Next(ctx, w.seq)
		if err != nil {
			return false, err
		}
		last := items[len(items)-1]
		if !last.Last() {
			if err := w.send(items...); err != nil {
				return true, err
			}
			continue
		}
		if err := w.send(items[:len(items)-1]...); err != nil {
			return true, err
		}
		t, err := w.account(ctx, w.agentID, w.runID, 0)
		if err != nil {
			return true, w.send(last) // the end is known, if not all about it
		}
		return true, w.end(ctx, last.Seq, t)
	}
}

// catchUp sends what memory has dropped, up to a number: the journal has it, and
// perhaps more.
func (w *watch) catchUp(ctx context.Context, upto uint64) error {
	t, err := w.account(ctx, w.agentID, w.runID, 0)
	if err != nil {
		return err
	}
	if done := replay.Of(t.GetSteps()); done.Exact {
		if err := w.send(done.After(w.seq)...); err != nil {
			return err
		}
	}
	if w.seq < upto { // a program's: the journal does not say where it stood
		return w.send(run.Item{Seq: upto, Kind: run.Lifecycle, Phase: run.Restart})
	}
	return nil
}

// replay sends a finished run from its journal, as far as the reader has not got
// it.
func (w *watch) replay(ctx context.Context, t *registrypb.Turn) error {
	done := replay.Of(t.GetSteps())
	if err := w.send(done.After(w.seq)...); err != nil {
		return err
	}
	seq := done.Last() + 1
	switch dead := w.ending(ctx, t).GetStatus() == runnerpb.RunStatus_RUN_STATUS_ERROR; {
	case done.Exact && w.seq >= seq && !dead:
		return nil // it has all of it
	default:
		return w.end(ctx, max(seq, w.seq+1), t)
	}
}

// end sends the last item, with what came of the run.
func (w *watch) end(ctx context.Context, seq uint64, t *registrypb.Turn) error {
	e := w.ending(ctx, t)
	i := toItem(run.Item{Seq: seq, Kind: run.Lifecycle, Phase: run.End})
	if e.GetStatus() == runnerpb.RunStatus_RUN_STATUS_ERROR {
		i.Phase, i.Text, i.ErrorCode = run.Error, e.GetError(), e.GetErrorCode()
	}
	i.InputTokens, i.OutputTokens, i.Payloads, i.MergedInto = e.GetInputTokens(), e.GetOutputTokens(), e.GetPayloads(), e.GetMergedInto()
	return w.out.Send(i)
}

func toItem(i run.Item) *runnerpb.StreamRunResponse {
	out := &runnerpb.StreamRunResponse{
		Seq: i.Seq, Stream: streams[i.Kind], Phase: i.Phase, Text: i.Text, Tool: i.Tool, CallId: i.CallID, WillRetry: i.WillRetry, PromptId: i.PromptID,
	}
	if c := i.Call; c != nil {
		out.Summary, out.Class, out.External, out.Parallel = c.Summary, c.Class, c.External, int32(c.Parallel)
	}
	return out
}

// fateOrStream waits until the run has its fate or is worked on here.
func (s *Service) fateOrStream(ctx context.Context, agentID, runID string, opened <-chan struct{}) (*registrypb.Turn, error) {
	t, err := s.account(ctx, agentID, runID, 0)
	if err != nil || t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
		return t, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		turn *registrypb.Turn
		err  error
	}
	fate := make(chan answer, 1)
	go func() {
		t, err := s.account(waiting, agentID, runID, slice)
		fate <- answer{t, err}
	}()
	for {
		select {
		case a := <-fate:
			return a.turn, a.err
		case <-opened:
			var stream *run.Stream
			if stream, opened = s.hub.Find(runID); stream != nil && stream.Live() {
				cancel()
				<-fate
				return nil, nil
			}
		}
	}
}
