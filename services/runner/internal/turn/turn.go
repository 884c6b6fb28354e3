package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/rpc/runs"
	"github.com/theclaw/agents/internal/rpc/runs/wording"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/prompt"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/session"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// What ends a turn before its fate. All leave the journal as it is.
var (
	// ErrLost: the lease is lost; its holder goes on.
	ErrLost = registrycall.ErrLost
	// ErrYield: the batch gives the lease back while the turn waits.
	ErrYield = errors.New("turn put off: the batch ends")
	// ErrStale: another event has the inbox id.
	ErrStale = registrycall.ErrStale

	// ErrAborted is the cause with which a person ends a turn.
	ErrAborted = errors.New(wording.ByOwner)
	errTimeout = errors.New("timeout")
)

// Cut is the cause with which the command stop ends a turn; it is [ErrAborted], too.
type Cut struct {
	By  int64 // inbox id of the command
	All bool  // it ends all that its conversation has begun
}

// Error is the error's.
func (c Cut) Error() string { return fmt.Sprintf("stopped by message %d", c.By) }

// Is reports whether the cause is that a person ends the turn.
func (Cut) Is(target error) bool { return target == ErrAborted }

// Journal is the part of the registry's TurnService that a turn needs.
type Journal interface {
	BeginTurn(ctx context.Context, in *registrypb.BeginTurnRequest, opts ...grpc.CallOption) (*registrypb.BeginTurnResponse, error)
	RecordStep(ctx context.Context, in *registrypb.RecordStepRequest, opts ...grpc.CallOption) (*registrypb.RecordStepResponse, error)
	FinishTurn(ctx context.Context, in *registrypb.FinishTurnRequest, opts ...grpc.CallOption) (*registrypb.FinishTurnResponse, error)
	runs.Turns // for the steps that a claim has no room for
}

// Slot is the right to work among all turns of this process.
type Slot interface {
	// Pause gives up the slot, waits and takes it again; back, when closed, ends the wait.
	// It returns ErrYield when the batch ends meanwhile, and the context's cause when that
	// ends.
	Pause(ctx context.Context, d time.Duration, back <-chan struct{}) error
	// Wait gives up the slot while f runs, which waits for a person, and takes it again. It
	// returns the error of f; ErrYield when the batch ends first, and the context's cause when
	// that ends.
	Wait(ctx context.Context, f func(context.Context) error) error
	// Behind returns the events of the same source, with ids above after, that wait behind
	// this one, and a channel that is closed when there may be others.
	Behind(after int64) ([]*registrypb.PendingEvent, <-chan struct{})
	// Hold keeps an event behind this one from being withdrawn, or no longer; false when it is
	// not there, or was withdrawn.
	Hold(key string, on bool) bool
	// Alone exchanges the slot for all slots of the process.
	Alone(ctx context.Context) error
	// GivenBack is how the claim before ended when this process gave the turn back; nil: it
	// did not.
	GivenBack() *registrypb.FailedTry
	// Queue says what becomes of the events of the conversation that come meanwhile; waits: the turn goes on with a
	// call that waits for a person.
	Queue(mode registrypb.QueueMode, waits bool)
	// Collect returns the events that wait behind this one and are to be merged into
	// it, and how many of all, from this one on, waited beyond the cap of the queue; Steer
	// those that came since and are to be merged now.
	Collect() (members []*registrypb.Member, short int)
	Steer() []*registrypb.Member
	// Background reserves the place of background work that follows the turn. There is
	// one for each conversation: nil when an earlier turn's is not over, too many are, or
	// the batch ends.
	Background() Background
	// AwaitBackground waits, at most d, until the work that follows an earlier turn of the
	// conversation is ready, or over, and gives up work that has not begun. It reports
	// whether it is, or there is none.
	AwaitBackground(ctx context.Context, d time.Duration, over bool) bool
}

// Background is the place of work that follows a turn, under the same lease. The turn
// either begins the work or cancels the place.
type Background interface {
	// Begin starts the work and does not wait for it. Its context ends with ctx, and when
	// the batch is to end. The work calls ready when what a later turn may wait for is
	// done; its end is enough.
	Begin(ctx context.Context, work func(ctx context.Context, ready func()))
	// Cancel gives the place up; after Begin it does nothing.
	Cancel()
}

// Meter counts; [obs.RunnerMetrics] does.
type Meter interface {
	modelcall.Meter
	toolset.Meter
}

// Driver works on turns. All fields but Root, Memory, Sessions and Trace are required and shared by
// all turns.
type Driver struct {
	Journal Journal
	// Root holds the directories of agents where the registry's paths mean nothing, on
	// another machine; empty: the registry's paths.
	Root   string
	Models modelcall.Models
	// Memory digests what does not fit into a prompt; nil: the oldest messages are cut.
	Memory *memory.Registry
	// Sessions writes the session files; nil writes them at once.
	Sessions *session.Writer
	// Tools are those that turns may offer.
	Tools *toolset.Tools
	// Media has the images of results and the files of messages; nil: models get none.
	Media Media
	// Transcribers and Programs make text of voice messages, as the settings say.
	Transcribers modelcall.Transcribers
	Programs     Programs
	// Commands carries out commands that the registry does not.
	Commands Commands
	// Observe calls the hooks that observe that a turn is a command, or begins a session; it is called
	// once for each claim of a turn whose settings have such hooks.
	Observe func(ctx context.Context, w Work, b *registrypb.BeginTurnResponse)
	// Sources make prompts.
	Sources prompt.Sources
	Trace   *tracing.Tracer // nil: no traces
	Meter   Meter
	Logger  *slog.Logger
}

// Work is one event under a lease.
type Work struct {
	AgentID, ThreadID, Key string
	InboxID                int64
	Source                 string
	// FromOwner: an owner of the home wrote the command that the event is.
	FromOwner bool
	// Command is the chat command that the event is; nil: it is none.
	Command *registrypb.ChatCommand
	// Fence is resource=token, for the environment of tools.
	Fence string
	// Check returns nil while the lease is trusted.
	Check func() error
	Slot  Slot
	// Stream publishes what happens.
	Stream Stream
	// Panicked is called for each panic that was recovered, with the key of its turn, and
	// Dead when the turn is dead.
	Panicked, Dead func(key string)
	// Abort ends when a person ends the turn, with the cause ErrAborted.
	Abort context.Context //nolint:containedctx // a second end of the work, not of the call
}

// A GivenBack is the error of a turn that was claimed and is given back, by a process that
// lives: that is an attempt on the event, and no crash.
type GivenBack struct {
	Attempt *registrypb.FailedTry
	Err     error
}

// Error is the error's.
func (g *GivenBack) Error() string { return g.Err.Error() }

// Unwrap returns what happened.
func (g *GivenBack) Unwrap() error { return g.Err }

// Result is the fate of an event.
type Result struct {
	Fate registrypb.Fate
	// Acked is the inbox's last acknowledged id; 0 when it is not known.
	Acked int64
	// Already is true when the event had its fate before.
	Already bool
}

// Run works on the event until it has its fate. An error means that it has
// none: ErrLost, ErrYield and ErrStale, the cause of ctx, or what the registry
// could not do, after which the same call may be made again. Once the event was claimed
// the last is a [*GivenBack].
func (d *Driver) Run(ctx context.Context, w Work) (result Result, err error) {
	t := &turn{Driver: d, w: w, out: &publisher{to: w.Stream}}
	defer func() {
		class := classInternal
		if p := recover(); p != nil { // outside of an attempt: a defect of ours
			w.Panicked(w.Key)
			class = classPanic
			result, err = Result{}, fmt.Errorf("turn panicked: %s", reportPanic(d.Logger, p, "agent_id", w.AgentID, "event_id", w.InboxID))
		}
		if t.begun != nil && ctx.Err() == nil {
			err = givenBack(class, err, t.tries)
		}
	}()
	t.steps = &steps{Log: step.Log{Tools: d.Tools}, t: t}
	t.logf("INFO", "route: inbox event %d from %s -> %s", w.InboxID, w.Source, w.ThreadID)
	alone := false
	for {
		if err := t.trusted(ctx); err != nil {
			return Result{}, err
		}
		begun, err := t.begin(ctx, alone)
		if err != nil {
			return Result{}, err
		}
		switch begun.GetOutcome() {
		case registrypb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO:
			w.Slot.Queue(begun.GetConfig().GetQueueMode(), goesOnWaiting(begun.GetSteps()))
			if len(begun.GetConfig().GetHooks()) > 0 {
				d.Observe(ctx, w, begun)
			}
			if begun.GetCommand() != nil {
				return t.command(ctx, begun)
			}
			if err := t.claim(ctx, begun); err != nil {
				return Result{}, err
			}
			defer t.cancelDigest()
			result, err := t.work(ctx)
			if err == nil {
				t.beginDigest(ctx)
			}
			return result, err
		case registrypb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_FINISHED:
			return Result{Already: true}, nil
		case registrypb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_EXHAUSTED:
			t.out.End(cmp.Or(begun.GetError(), "the message is dead"))
			return Result{Fate: registrypb.Fate_FATE_DEAD}, nil
		case registrypb.BeginTurnOutcome_BEGIN_TURN_OUTCOME_ALONE:
			alone, err = true, t.untilAborted(ctx, w.Slot.Alone)
		default: // WAIT
			err = t.pause(ctx, max(begun.GetWait().AsDuration(), 10*time.Millisecond), nil)
		}
		switch {
		case err == nil:
		case ctx.Err() == nil:
			return t.stopped(ctx, err)
		default:
			return Result{}, err
		}
	}
}
