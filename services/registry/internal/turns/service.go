// Package turns implements TurnService: a runner opens a batch, begins a turn, records its
// steps and finishes it, and people ask for the outcome of a message and for the usage of
// models.
//
//	OpenBatch --> BeginTurn (T1, T2) --> RecordStep (T3, T4, T6)* --> FinishTurn
//	 routes        claims                 journals                    T7 or T9, T8
//
// It promises that only the holder of the agent's run lease advances a turn, that an event
// is routed in one place, and that a runner gets the memory of the speaking peer and of no
// other. It runs no model and no tool, and prices nothing (package price).
package turns

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/admission"
	"github.com/theclaw/agents/services/registry/internal/memory"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Agent(ctx context.Context, id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)
	// Path returns the directory of a thread; "" where it has none.
	Path(r store.Ref) (string, error)
	// Stopped reports whether an agent is known to be stopped; where only the claim itself
	// can know, it is not.
	Stopped(a *state.Agent) bool
	// Space refuses new work while there is no space for it.
	Space() error
}

// Store stores turns, memory and inboxes.
type Store interface {
	store.Turns
	store.Memories
	store.Processes
	Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error)
	Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error)
	InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error)
	Origin(ctx context.Context, agent string, id int64) (*store.Origin, error)
	Session(ctx context.Context, r store.Ref) (store.Session, error)
	OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (store.Batch, error)
	Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (acked int64, err error)
}

// Turns begins turns, and waits for messages.
type Turns interface {
	// Begin makes the thread when it is absent, and begins a turn in it.
	Begin(ctx context.Context, r store.Ref, tuple string, f store.Fence, b store.Begin) (store.Begun, error)
	// Follow calls read when there may be events after one in the inbox of an agent, until
	// it has read some; false when it was not, or in vain, in the time to wait.
	Follow(ctx context.Context, a *state.Agent, f store.Fence, after int64, wait time.Duration, read func() (scanned int64, some bool, err error)) (bool, error)
}

// Replies is notified of what is to be sent.
type Replies interface {
	// ReplyStored is called before the message is acknowledged, ReplyAcked after it.
	ReplyStored(a *state.Agent, threadID string, head int64)
	ReplyAcked(a *state.Agent, threadID string, head int64)
	// SayStored is called after a message that a step sends was stored.
	SayStored(ctx context.Context, a *state.Agent, threadID string)
}

// Wakes notifies the calls that wait for a fate.
type Wakes interface {
	AwaitFate(agent string) (woken <-chan struct{}, done func())
	FateChanged(agent string)
	Again() <-chan time.Time
}

// Approvals decides what of a turn asks a person.
type Approvals interface {
	// Bound makes the policy for commands in an agent's settings at least as strict as that of
	// the installation.
	Bound(ctx context.Context, agent string, c *registryv1.TurnConfig) error
	// NotBegun marks the steps of a turn that wait for a person.
	NotBegun(ctx context.Context, agent, turn string, steps []*registryv1.Step) error
	// Used records that entries of an allow list let a command run; nil: none did.
	Used(ctx context.Context, agent string, use *registryv1.ExecUse)
}

// Owners knows who was made an owner of the home, besides those of the settings.
type Owners interface {
	PairedOwners(ctx context.Context) ([]string, error)
}

// Questions reads the questions of agents.
type Questions interface {
	Question(ctx context.Context, id, agent, key string) (store.Question, bool, error)
}

// Pins knows which tools of MCP servers are approved.
type Pins interface {
	// Pinned adds them to the servers of a turn.
	Pinned(ctx context.Context, servers []*registryv1.McpServer) error
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Store      Store
	Agents     Agents
	Turns      Turns
	Replies    Replies
	Wakes      Wakes
	Log        wire.Log
	Memory     *memory.Files
	Quota      *admission.Quota
	Approvals  Approvals
	Questions  Questions
	Pins       Pins
	Owners     Owners
	Generation *store.Generation
	// CancelWaits ends the questions and approvals that a turn waits for.
	CancelWaits func(ctx context.Context, agent, turn, by string) error
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedTurnServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }
