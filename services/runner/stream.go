package runner

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/step"
)

var streams = map[run.Kind]runnerpb.RunStream{
	run.Lifecycle: runnerpb.RunStream_RUN_STREAM_LIFECYCLE,
	run.Assistant: runnerpb.RunStream_RUN_STREAM_ASSISTANT,
	run.Reasoning: runnerpb.RunStream_RUN_STREAM_REASONING,
	run.Tool:      runnerpb.RunStream_RUN_STREAM_TOOL,

	run.Compaction: runnerpb.RunStream_RUN_STREAM_COMPACTION,
}

// StreamRun sends what happens in a run until its end: from memory while it is
// worked on here, from the journal when it is over, and waits in between.
func (s *Service) StreamRun(req *runnerpb.StreamRunRequest, out grpc.ServerStreamingServer[runnerpb.StreamRunResponse]) error {
	ctx, after := out.Context(), req.GetAfterSeq()
	for {
		stream, opened := s.hub.Find(req.GetRunId())
		if stream != nil {
			err := follow(ctx, stream, &after, out)
			switch {
			case err == nil:
				return nil
			case errors.Is(err, run.ErrBehind):
				return fault.New(codes.OutOfRange, fault.Overloaded, "the stream was read too slowly, a part of it is gone", "begin again with after_seq 0")
			case !errors.Is(err, run.ErrClosed):
				return err
			}
		}
		t, err := s.fateOrStream(ctx, req.GetAgentId(), req.GetRunId(), opened)
		if err != nil {
			return err
		}
		if t.GetState() == registrypb.TurnState_TURN_STATE_DONE {
			return replay(t, after, out)
		}
	}
}

// follow sends a stream's items after a seq; nil after the run's last one.
func follow(ctx context.Context, stream *run.Stream, after *uint64, out grpc.ServerStreamingServer[runnerpb.StreamRunResponse]) error {
	for {
		items, err := stream.Next(ctx, *after)
		if err != nil {
			return err
		}
		for _, i := range items {
			if err := out.Send(toItem(i)); err != nil {
				return err
			}
			*after = i.Seq
			if i.Last() {
				return nil
			}
		}
	}
}

func toItem(i run.Item) *runnerpb.StreamRunResponse {
	return &runnerpb.StreamRunResponse{Seq: i.Seq, Stream: streams[i.Kind], Phase: i.Phase, Text: i.Text, Tool: i.Tool, CallId: i.CallID, WillRetry: i.WillRetry}
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

// replay tells a finished run from its journal, as a generation of its own.
func replay(t *registrypb.Turn, after uint64, out grpc.ServerStreamingServer[runnerpb.StreamRunResponse]) error {
	seq := (after>>32 + 1) << 32
	items := []run.Item{{Kind: run.Lifecycle, Phase: run.Start}}
	for _, st := range t.GetSteps() {
		switch st.GetKind() {
		case registrypb.StepKind_STEP_KIND_MODEL:
			if a, err := step.Decode(st.GetResult()); err == nil && a.Text != "" {
				items = append(items, run.Item{Kind: run.Assistant, Phase: run.Delta, Text: a.Text})
			}
		case registrypb.StepKind_STEP_KIND_TOOL:
			i := run.Item{Kind: run.Tool, Phase: run.Start, Tool: st.GetName(), CallID: st.GetCallId(), Text: st.GetArguments()}
			items = append(items, i)
			i.Phase, i.Text = run.End, string(st.GetResult())
			items = append(items, i)
		case registrypb.StepKind_STEP_KIND_COMPACTION:
			items = append(items, run.Item{Kind: run.Compaction, Phase: run.Start}, run.Item{Kind: run.Compaction, Phase: run.End})
		default:
		}
	}
	last := run.Item{Kind: run.Lifecycle, Phase: run.End}
	if e := ending(t); e.GetStatus() == runnerpb.RunStatus_RUN_STATUS_ERROR {
		last.Phase, last.Text = run.Error, e.GetError()
	}
	for _, i := range append(items, last) {
		seq++
		i.Seq = seq
		if err := out.Send(toItem(i)); err != nil {
			return err
		}
	}
	return nil
}
