package intake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/gateway/internal/stream"
)

// queued is the state of a run that no runner works on yet.
const queued = "queued"

// stream answers with the events of the run of a message, and with what [Handler.reply] answers
// as the last one. A program that has gone away, or reads nothing, gets no more.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, account string, out answer) {
	e, err := stream.Begin(w)
	if err != nil {
		return
	}
	d, _ := wait(r) // it was checked
	if out.RunID != "" && d > 0 {
		if out.Fate, out.Reply, err = h.run(r, e, account, out, time.Now().Add(d)); err != nil {
			return
		}
	}
	name := "done"
	if !out.Accepted || out.Fate == "dead" || out.Fate == "aborted" {
		name = "error"
	}
	_ = e.End(name, out)
}

// run sends what happens in the run of a message until its end or a time, and returns how it
// ended; no fate: it has not. The error means that the client cannot be written to.
func (h *Handler) run(r *http.Request, e *stream.Events, account string, out answer, until time.Time) (fate, reply string, err error) {
	state := queued
	if out.Duplicate {
		got, err := h.turn(r.Context(), out, 0)
		switch {
		case err != nil: // it is asked for again at the end
		case fateOf(got) != "":
			return fateOf(got), got.GetReply(), nil
		case got.GetTurn().GetClaimedAt() != nil:
			state = ""
		}
	}
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	after, _ := stream.Last(r) // it was checked
	reader, ok := h.Streams.Follow(ctx, stream.Client{Kind: "webhook", Account: account}, out.Agent, out.RunID, after)
	if !ok {
		return "", "", nil
	}
	defer reader.Close()
	if state != "" {
		if err := e.Frame(stream.Frame{Type: stream.State, Text: state}); err != nil {
			return "", "", err
		}
	}
	for err == nil {
		within, cancel := context.WithTimeout(ctx, stream.KeepAlive)
		f, end := reader.Next(within)
		cancel()
		switch {
		case end == nil:
			err = e.Frame(f)
		case ctx.Err() == nil && errors.Is(end, context.DeadlineExceeded): // nothing happens now
			err = e.Comment()
		default:
			if ctx.Err() == nil && !errors.Is(end, io.EOF) {
				h.Logger.Warn("a run is not followed any more; its reply is still awaited", "agent_id", out.Agent, "run_id", out.RunID, "error", fault.Chain(end))
			}
			return h.outcome(r, e, out, until)
		}
	}
	return "", "", err
}

// outcome waits for the end of a run until a time. The error means that the client cannot be
// written to.
func (h *Handler) outcome(r *http.Request, e *stream.Events, out answer, until time.Time) (fate, reply string, err error) {
	for try := 0; err == nil; try++ {
		left := max(time.Until(until), 0)
		got, failed := h.turn(r.Context(), out, min(left, stream.KeepAlive))
		switch {
		case failed == nil && (left == 0 || fateOf(got) != ""):
			return fateOf(got), got.GetReply(), nil
		case failed == nil:
			try = 0
			err = e.Comment()
		case r.Context().Err() != nil:
			return "", "", nil
		case left == 0 || fault.From(failed).Code != codes.Unavailable:
			h.Logger.Warn("a reply is not awaited any more", "agent_id", out.Agent, "run_id", out.RunID, "error", fault.Chain(failed))
			return "", "", nil
		}
		_ = pause.For(r.Context(), min(left, again.Wait(try))) // a registry that ends answers early
	}
	return "", "", err
}

// turn asks for the turn of a message, and waits for its fate.
func (h *Handler) turn(ctx context.Context, out answer, wait time.Duration) (*registryv1.GetTurnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+acceptLimit)
	defer cancel()
	return h.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: out.Agent, Key: out.RunID, Wait: durationpb.New(wait), WithReply: true})
}
