package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// streamed are the times of one reply that was watched while it was written.
type streamed struct {
	first time.Duration // from the provider's first byte to the first piece seen
	total time.Duration // from the provider's first byte to the end of the run seen
	rest  time.Duration // from the provider's last byte to the end of the run seen
}

// stream measures how much later than the provider wrote it a watcher has the reply: its first
// piece, and all of it. The end of a run is sent when the reply is on disk.
func (r *run) stream(ctx context.Context) error {
	begin := make(chan struct{})
	return r.withProvider(ctx, "stream", provider{Begin: begin}, func(s *server.Server, model *fakeServer) error {
		return r.streamOf(ctx, s, watcher{model: model, begin: begin})
	})
}

func (r *run) streamOf(ctx context.Context, s *server.Server, w watcher) error {
	if err := s.AgentWith(ctx, "streams", providerName, [2]string{"outbound", "[]"}); err != nil {
		return err
	}
	conn, err := server.Dial(s.Home, "runner")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	w.runner = runnerv1.NewRunnerServiceClient(conn)
	for _, pieces := range []int{2, 200} {
		var first, total, rest []time.Duration
		for i := range r.size(200, 40) {
			one, err := w.watch(ctx, fmt.Sprintf("p%dn%d", pieces, i), pieces)
			if err != nil {
				return err
			}
			first, total, rest = append(first, one.first), append(total, one.total), append(rest, one.rest)
		}
		slices.Sort(first)
		slices.Sort(total)
		slices.Sort(rest)
		name := fmt.Sprintf("stream of %d pieces: ", pieces)
		if pieces == 2 {
			r.AtMost(name+"first token after the provider's, p50", load.Percentile(first, .5), time.Millisecond)
			continue
		}
		r.AtMost(name+"provider's first byte -> end seen, p50", load.Percentile(total, .5), 8*time.Millisecond)
		r.Figure(name+"of it after the provider's last byte, p50", table.Short(load.Percentile(rest, .5)))
	}
	return nil
}

// watcher starts runs and watches them.
type watcher struct {
	runner runnerv1.RunnerServiceClient
	model  *fakeServer
	begin  chan<- struct{}
}

// watch watches one run in a conversation of its own, where nothing is digested meanwhile. The
// provider answers once the watcher is there.
func (w watcher) watch(ctx context.Context, peer string, pieces int) (one streamed, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	started, err := w.runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "streams", Text: fmt.Sprint("pieces: ", pieces), Source: benchSource(peer)})
	if err != nil {
		return one, fmt.Errorf("start run: %w", err)
	}
	stream, err := w.runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: "streams", RunId: started.GetRunId()})
	if err != nil {
		return one, fmt.Errorf("stream run: %w", err)
	}
	var began, heard time.Time
	text := 0
	for {
		i, err := stream.Recv()
		if err != nil {
			return one, fmt.Errorf("stream run: %w", err)
		}
		switch {
		case began.IsZero():
			select {
			case w.begin <- struct{}{}:
			case <-ctx.Done():
				return one, ctx.Err()
			}
			began = <-w.model.Seen
		case i.GetStream() == runnerv1.RunStream_RUN_STREAM_ASSISTANT:
			text += len(i.GetText())
			if heard.IsZero() {
				heard = time.Now()
			}
		case i.GetPhase() == "error":
			return one, fmt.Errorf("the run failed: %s", i.GetText())
		case i.GetPhase() == "end" && i.GetStream() == runnerv1.RunStream_RUN_STREAM_LIFECYCLE:
			end := time.Now()
			if want := pieces * len("word "); heard.IsZero() || text < want-1 { // the last space may be cut
				return one, fmt.Errorf("a run ended with %d bytes, want %d", text, want)
			}
			return streamed{first: heard.Sub(began), total: end.Sub(began), rest: end.Sub(<-w.model.Seen)}, nil
		}
	}
}

// benchSource is the source of a peer, whose conversation is named bench-PEER.
func benchSource(peer string) string { return "external:bench:bench:dm:" + peer + ":" + peer }
