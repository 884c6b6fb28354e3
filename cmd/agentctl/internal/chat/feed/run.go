package feed

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// What a run does.
type (
	// Pieces are what happened in the run of a message, in order.
	Pieces struct {
		ID    int64
		Items []Item
	}
	// Item is one of them.
	Item struct {
		What               What
		Text, Tool, CallID string
		Summary            string // of a tool that begins; empty: its runner is of an earlier build
	}
	// What happened.
	What int
)

// The kinds of items.
const (
	Spoke What = iota + 1
	Thought
	Began  // a tool
	Output // of a tool that runs
	Ended  // a tool
	Again  // the run goes on after a restart, or the stream from its beginning
	Digest // of the conversation is begun, before the model is asked
	Digested
)

const (
	// beat is how often the screen hears of a run.
	beat = 40 * time.Millisecond
	// ahead is how many items may wait for the next beat.
	ahead = 1024
)

// follow shows the run of a message while it happens, until its end or that of
// ctx. It is an extra: when the runner cannot be asked the whole reply comes at
// the end.
func (s *Source) follow(ctx context.Context, id int64) {
	run, err := s.Run(ctx, id)
	if err != nil {
		return
	}
	var after uint64
	for ctx.Err() == nil {
		err := s.stream(ctx, id, run, &after)
		switch e := fault.From(err); {
		case err == nil, e.Code == codes.Unimplemented, e.Code == codes.NotFound, e.Code == codes.PermissionDenied:
			return
		case e.Code == codes.OutOfRange: // a part of it is gone: from the beginning
			after = 0
			s.Send(Pieces{id, []Item{{What: Again}}})
		}
		_ = pause.For(ctx, again)
	}
}

// Run is the run id of a message, asked for until the registry answers.
func (s *Source) Run(ctx context.Context, id int64) (string, error) {
	r, err := s.Env.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: s.Agent, InboxId: id}, grpc.WaitForReady(true))
	return r.GetTurn().GetKey(), err
}

// stream reads a run's stream from a seq on; nil after its end.
func (s *Source) stream(ctx context.Context, id int64, run string, after *uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.Env.RunnerService().StreamRun(ctx, &runner.StreamRunRequest{AgentId: s.Agent, RunId: run, AfterSeq: *after}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	items := make(chan Item, ahead)
	end := make(chan error, 1)
	go func() {
		defer close(items)
		for {
			r, err := stream.Recv()
			if err != nil {
				end <- err
				return
			}
			if i, ok := item(r, *after); ok {
				select {
				case items <- i:
				case <-ctx.Done():
					end <- ctx.Err()
					return
				}
			}
			*after = r.GetSeq()
			if r.GetStream() == runner.RunStream_RUN_STREAM_LIFECYCLE && (r.GetPhase() == "end" || r.GetPhase() == "error") {
				end <- nil
				return
			}
		}
	}()
	s.pass(id, items)
	return <-end
}

// item reads one item; ok is false for what is not shown.
func item(r *runner.StreamRunResponse, after uint64) (Item, bool) {
	i := Item{Text: r.GetText(), Tool: r.GetTool(), CallID: r.GetCallId(), Summary: r.GetSummary()}
	switch r.GetStream() {
	case runner.RunStream_RUN_STREAM_ASSISTANT:
		i.What = Spoke
	case runner.RunStream_RUN_STREAM_REASONING:
		i.What = Thought
	case runner.RunStream_RUN_STREAM_TOOL:
		i.What = map[string]What{"start": Began, "update": Output, "result": Ended, "end": Ended}[r.GetPhase()]
	case runner.RunStream_RUN_STREAM_LIFECYCLE:
		// Another generation works from the journal: what was not recorded comes
		// once more.
		if r.GetPhase() == "restart" || r.GetPhase() == "start" && after != 0 {
			i.What = Again
		}
	case runner.RunStream_RUN_STREAM_COMPACTION:
		i.What = map[string]What{"start": Digest, "end": Digested}[r.GetPhase()]
	default:
	}
	return i, i.What != 0
}

// pass sends what has come at each beat, until the items end.
func (s *Source) pass(id int64, items <-chan Item) {
	for first := range items {
		batch := []Item{first}
		t := time.NewTimer(beat)
		for open := true; open; {
			select {
			case i, ok := <-items:
				if open = ok; ok {
					batch = join(batch, i)
				}
			case <-t.C:
				open = false
			}
		}
		t.Stop()
		s.Send(Pieces{id, batch})
	}
}

// join appends an item, to the last one where it goes on with it.
func join(batch []Item, i Item) []Item {
	last := &batch[len(batch)-1]
	if last.What == i.What && (i.What == Spoke || i.What == Thought || i.What == Output && i.CallID == last.CallID) {
		last.Text += i.Text
		return batch
	}
	return append(batch, i)
}
