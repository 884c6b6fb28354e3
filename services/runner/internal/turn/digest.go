package turn

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
)

const (
	// awaitDigest is how long a turn whose prompt lacks messages waits for the digest
	// that is being made of them; then it goes on without.
	awaitDigest = time.Minute
	// logTime bounds the call that brings the lines of a failed digest into the log.
	logTime = 5 * time.Second
)

// laterDigest is a digest that was due in a turn and is made after it.
type laterDigest struct {
	place Background
	w     Work // no more of it than the digest needs
	job   memory.Job
}

// reserveDigest takes the place of a digest that is due after the turn, before the end of
// the turn is visible. A turn without an answer has none follow: what failed it would fail
// the digest too.
func (t *turn) reserveDigest(fate registrypb.Fate) {
	if fate != registrypb.Fate_FATE_REPLIED && fate != registrypb.Fate_FATE_SILENT || t.later != nil || t.requests == nil || !t.requests.Due() {
		return
	}
	place := t.w.Slot.Background()
	switch {
	case place == nil: // an earlier one is not over: the next turn measures again
	case t.requests.Waits():
		place.Cancel()
	default:
		w := Work{AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, Key: t.w.Key, Check: t.w.Check}
		t.later = &laterDigest{place, w, t.requests.Later(w.trusted)}
	}
}

// digestUpto notes that the turn has its fate, and the last event of it.
func (t *turn) digestUpto(id int64) {
	if t.later != nil {
		t.later.job.Upto = id
	}
}

// cancelDigest gives up a digest that was not begun.
func (t *turn) cancelDigest() {
	if t.later != nil {
		t.later.place.Cancel()
	}
}

// beginDigest begins the digest that was reserved. It does not keep the turn alive: what
// the turn holds is much more.
func (t *turn) beginDigest(ctx context.Context) {
	if t.later == nil || t.later.job.Upto == 0 {
		return
	}
	d, w, job := t.Driver, t.later.w, t.later.job
	job.Timeout = maxTime(t.begun.GetConfig())
	t.later.place.Begin(ctx, func(ctx context.Context, ready func()) {
		job.Ready = ready
		d.digest(ctx, w, job)
	})
}

// digest makes a digest after its turn. Whatever ends it, nothing is lost: the next turn of
// the conversation finds it due again.
func (d *Driver) digest(ctx context.Context, w Work, job memory.Job) {
	defer func() {
		if p := recover(); p != nil {
			reportPanic(d.Logger, p, "agent_id", w.AgentID, "thread_id", w.ThreadID)
			d.Memory.Panicked(job)
		}
	}()
	var logs []*registrypb.LogLine
	job.Logf = func(level, format string, args ...any) { logs = append(logs, logLine(level, format, args...)) }
	job.Commit = func(ctx context.Context, in *registrypb.RecordCompactionRequest) (*registrypb.RecordCompactionResponse, error) {
		r, err := registrycall.Call(ctx, w.trusted, func(ctx context.Context) (*registrypb.RecordCompactionResponse, error) {
			in.Logs = logs
			return d.Memory.Journal.RecordCompaction(ctx, in)
		})
		if err == nil {
			logs = nil
		}
		return r, err
	}
	job.Fatal = fatal
	if w.trusted(ctx) != nil {
		return
	}
	// One that was committed since the claim of the turn is not paid for again.
	_, moved, err := d.Memory.Moved(ctx, job)
	if err != nil && ctx.Err() == nil {
		d.Logger.WarnContext(ctx, "digest not started", "agent_id", w.AgentID, "thread_id", w.ThreadID, "error", fault.Chain(err))
	}
	if err != nil || moved {
		return
	}
	_, err = d.Memory.Thread(ctx, job)
	if len(logs) == 0 || err != nil || w.trusted(ctx) != nil {
		return
	}
	call, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	if _, err := d.Journal.RecordStep(call, &registrypb.RecordStepRequest{AgentId: w.AgentID, ThreadId: w.ThreadID, Key: w.Key, Logs: logs}); err != nil && ctx.Err() == nil {
		d.Logger.WarnContext(ctx, "log of a digest not written", "agent_id", w.AgentID, "thread_id", w.ThreadID, "error", fault.Chain(err))
	}
}

// fatal reports whether an error of the journal ends the work.
func fatal(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrStale) }
