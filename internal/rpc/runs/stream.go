package runs

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// lastWords is how long a runner may take to tell of an end that the journal knows.
const lastWords = 3 * time.Second

// StreamRun sends what happens in a run up to its end, wherever that is. As with any
// stream the caller ends ctx, or reads until an error.
func (c *Client) StreamRun(ctx context.Context, req *runnerpb.StreamRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runnerpb.StreamRunResponse], error) {
	s := &stream{c: c, ctx: ctx, agent: req.GetAgentId(), run: req.GetRunId(), seq: req.GetAfterSeq(), items: make(chan *runnerpb.StreamRunResponse), end: make(chan error, 1)}
	go func() { s.end <- s.follow(ctx) }()
	return s, nil
}

// stream is one reader of a run.
type stream struct {
	c          *Client
	ctx        context.Context //nolint:containedctx // of the one call, as every stream has it
	agent, run string
	seq        uint64 // all up to it was passed on
	items      chan *runnerpb.StreamRunResponse
	end        chan error
	over       error // what every later Recv answers
}

// errEnded says that the last item of the run was passed on.
var errEnded = errors.New("the run has ended")

// Recv answers the next item, io.EOF after the last.
func (s *stream) Recv() (*runnerpb.StreamRunResponse, error) {
	if s.over != nil {
		return nil, s.over
	}
	select {
	case i := <-s.items:
		return i, nil
	case s.over = <-s.end:
		if errors.Is(s.over, errEnded) {
			s.over = io.EOF
		}
		return nil, s.over
	}
}

// follow passes items on until the run ends, ctx does, or the registry cannot be asked.
func (s *stream) follow(ctx context.Context) error {
	var after uint64
	rest, wait := firstRest, slice
	for {
		found, err := s.c.where(ctx, s.agent, s.run, after, wait)
		switch {
		case err != nil:
			return err
		case found.GetEnded():
			return s.tell(ctx)
		case found.GetLease() == nil:
			after, wait = 0, slice
			continue
		}
		had := s.seq
		if err := s.watch(ctx, found.GetLease()); errors.Is(err, errEnded) || ctx.Err() != nil {
			return err
		}
		// It has it still, or seems to: not asked again at once, unless it has moved.
		if s.seq > had {
			rest = firstRest
		}
		after, wait, rest = found.GetLease().GetToken(), rest, min(2*rest, longestRest)
	}
}

// watch passes on what the runner of a lease tells, until that ends, or is not its to
// tell any more.
func (s *stream) watch(ctx context.Context, l *registrypb.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.moved(ctx, l.GetToken())
		cancel()
	}()
	defer func() { cancel(); <-gone }()
	r, err := s.c.holder(ctx, l)
	if err != nil {
		return err
	}
	return s.read(ctx, r)
}

// moved returns when the run is not the lease's any more, or has ended and its runner
// had time to say so.
func (s *stream) moved(ctx context.Context, token uint64) {
	for ctx.Err() == nil {
		found, err := s.c.where(ctx, s.agent, s.run, token, slice)
		switch {
		case err != nil:
			_ = pause.For(ctx, firstRest) // the registry: it may come back, and the runner may tell all
		case found.GetEnded():
			_ = pause.For(ctx, lastWords)
			return
		case found.GetLease().GetToken() > token:
			return
		}
	}
}

// read passes on what a runner tells.
func (s *stream) read(ctx context.Context, r runnerpb.RunnerServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := r.StreamRun(ctx, &runnerpb.StreamRunRequest{AgentId: s.agent, RunId: s.run, AfterSeq: s.seq})
	if err != nil {
		return err
	}
	for {
		i, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return errEnded // it has nothing more: all was passed on before
		}
		if err != nil {
			return err
		}
		if err := s.pass(ctx, i); err != nil {
			return err
		}
	}
}

// pass gives one item to the reader.
func (s *stream) pass(ctx context.Context, i *runnerpb.StreamRunResponse) error {
	if i.GetSeq() <= s.seq {
		return nil
	}
	select {
	case s.items <- i:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.seq = i.GetSeq()
	if i.GetStream() == runnerpb.RunStream_RUN_STREAM_LIFECYCLE && (i.GetPhase() == "end" || i.GetPhase() == "error") {
		return errEnded
	}
	return nil
}

// tell passes on what is left of a run that has ended.
func (s *stream) tell(ctx context.Context) (err error) {
	if s.c.anybody(ctx, func(r runnerpb.RunnerServiceClient) bool {
		call, cancel := context.WithTimeout(ctx, asking)
		defer cancel()
		err = s.read(call, r)
		return errors.Is(err, errEnded)
	}) || ctx.Err() != nil {
		return err
	}
	return s.alone(ctx)
}

// alone tells the end from the registry.
func (s *stream) alone(ctx context.Context) error {
	e, err := s.c.ending(ctx, s.agent, s.run)
	if err != nil {
		return err
	}
	first := &runnerpb.StreamRunResponse{Seq: 1, Stream: runnerpb.RunStream_RUN_STREAM_LIFECYCLE, Phase: "start"}
	if s.seq > 0 {
		first.Seq, first.Phase = s.seq+1, "restart" // what was said since the last tool is sent again
	}
	last := &runnerpb.StreamRunResponse{
		Stream: runnerpb.RunStream_RUN_STREAM_LIFECYCLE, Phase: "end", InputTokens: e.GetInputTokens(), OutputTokens: e.GetOutputTokens(),
		Payloads: e.GetPayloads(), MergedInto: e.GetMergedInto(), ErrorCode: e.GetErrorCode(),
	}
	items := []*runnerpb.StreamRunResponse{first}
	if e.GetText() != "" {
		items = append(items, &runnerpb.StreamRunResponse{Seq: first.GetSeq() + uint64(len(e.GetText())), Stream: runnerpb.RunStream_RUN_STREAM_ASSISTANT, Phase: "delta", Text: e.GetText()})
	}
	if e.GetStatus() == runnerpb.RunStatus_RUN_STATUS_ERROR {
		last.Phase, last.Text = "error", e.GetError()
	}
	last.Seq = items[len(items)-1].GetSeq() + 1
	for _, i := range append(items, last) {
		if err := s.pass(ctx, i); err != nil {
			return err
		}
	}
	return errEnded
}

// The rest of a client stream, which a reader of items does not need.
func (s *stream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (s *stream) Trailer() metadata.MD         { return nil }
func (s *stream) CloseSend() error             { return nil }
func (s *stream) Context() context.Context     { return s.ctx }
func (s *stream) SendMsg(any) error            { return io.EOF }
func (s *stream) RecvMsg(any) error            { return errors.New("read with Recv") }
