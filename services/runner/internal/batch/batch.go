package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/fairqueue"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

const (
	// Window is the most ids in hand from the first unfinished one on.
	Window = 1024
	// page is how many events one call reads.
	page = 64

	// A batch that got so far had its share, if others wait.
	shareEvents = 32
	shareTime   = time.Minute
)

// ErrEnded means that the batch ended before the head of a waiter was reached.
var ErrEnded = errors.New("the batch ended")

// Inbox is the part of the registry's TurnService that a batch needs.
type Inbox interface {
	OpenBatch(ctx context.Context, in *registrypb.OpenBatchRequest, opts ...grpc.CallOption) (*registrypb.OpenBatchResponse, error)
	// WithdrawTurn ends an event that no turn has begun. An error of the reason
	// TURN_BEGUN says that only its turn can end it.
	WithdrawTurn(ctx context.Context, in *registrypb.WithdrawTurnRequest, opts ...grpc.CallOption) (*registrypb.WithdrawTurnResponse, error)
}

// Turn works on one event until it has its fate; see turn.Driver.Run.
type Turn func(ctx context.Context, e *registrypb.PendingEvent, s turn.Slot) error

// Config is the data of a batch.
type Config struct {
	AgentID string
	// Token of the lease, for logs.
	Token uint64
	// Keep is how long an idle batch goes on.
	Keep time.Duration
	// Probe lets one turn at a time begin until the first one ended well.
	Probe bool
}

// Abort ends the turn of an event, now or as soon as it begins, until settled is called. by is the command that
// ends it.
type Abort func(key string, by *registrypb.PendingEvent) (settled func())

// Deps are the live things of a batch.
type Deps struct {
	Inbox  Inbox
	Turn   Turn
	Abort  Abort
	Slots  *Slots
	Logger *slog.Logger
}

// Batch is the work under one lease. Make it with New and call Work once.
type Batch struct {
	cfg  Config
	deps Deps

	poke chan struct{} // 1 deep: there is something to read
	// stop ends when nothing more is to be started.
	stop context.Context
	halt context.CancelFunc
	// leaving are events that a person, or a command of one, withdraws.
	leaving chan *entry

	idle chan func()    // lanes to goroutines that have none
	wg   sync.WaitGroup // lanes

	agent *fairqueue.Places // turns of this agent at a time
	began time.Time

	mu          sync.Mutex
	lanes       map[string][]*entry // the one in work, and those behind it
	pending     map[int64]bool      // in hand, without a fate
	order       []int64             // ids in hand, rising; finished ones are dropped lazily
	scanned     int64               // every id up to it is in hand or has its fate
	concurrency int64
	queue       queue
	modes       map[string]registrypb.QueueMode // of lanes whose turns reported one
	done        int64                           // events that got their fate here
	rescan      bool                            // an id has another event: read again from the first unfinished
	ended       bool
	background  int // pieces of background work, with those that follow turns
	held        int // those of them that hold it
	following   map[string]*following
	progress    chan struct{} // closed at the next change of the above
	// noBackground: no more background work begins.
	noBackground bool
}

// New makes a batch.
func New(c Config, d Deps) *Batch {
	stop, halt := context.WithCancel(context.Background())
	return &Batch{
		cfg: c, deps: d, began: time.Now(),
		poke: make(chan struct{}, 1), stop: stop, halt: halt, idle: make(chan func()), progress: make(chan struct{}),
		lanes: make(map[string][]*entry), leaving: make(chan *entry, Window), pending: make(map[int64]bool),
		following: make(map[string]*following), modes: make(map[string]registrypb.QueueMode),
	}
}

// Wake reports that there may be new events.
func (b *Batch) Wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// Stop lets running turns finish and starts nothing more; Work then ends.
func (b *Batch) Stop() { b.halt() }

// Work reads and works until there was nothing to do for Keep, yield is closed
// or Stop was called (nil), or ctx ended or the lease was lost (the cause). When
// it returns no turn is running, and no background work.
func (b *Batch) Work(ctx context.Context, yield <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer b.end()
	defer b.endBackground()
	defer b.wg.Wait()
	defer b.Stop()
	err := b.loop(ctx, yield, cancel)
	if err != nil {
		cancel(err) // a lost lease: everything stops at once
		return err
	}
	b.Stop()
	b.wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cancel(nil)
	return nil
}

func (b *Batch) loop(ctx context.Context, yield <-chan struct{}, lost context.CancelCauseFunc) error {
	idle := time.NewTimer(b.cfg.Keep)
	defer idle.Stop()
	logs := []*registrypb.LogLine{line("INFO", "run: start, lock acquired (lease token %d)", b.cfg.Token)}
	took := func(r *registrypb.OpenBatchResponse) int {
		n := 0
		if r != nil {
			n = b.take(ctx, r, lost)
		}
		if n > 0 {
			logs = append(logs, line("INFO", "run: %d message(s) read up to %d", n, r.GetScannedId()))
			idle.Reset(b.cfg.Keep)
		}
		return n
	}
	var f longPoll
	defer f.end()
	for read := true; ; {
		select { // an end comes before more work
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-yield:
			return nil
		case <-b.stop.Done():
			return nil
		default:
		}
		progress := b.changed() // before looking, so that no change is missed
		read = b.again() || read
		if after, limit := b.room(); read && limit > 0 {
			r, err := b.open(ctx, after, limit, logs)
			if err != nil {
				return err
			}
			logs = nil
			took(r)
			read = r.GetMore()
			idle.Reset(b.cfg.Keep)
			continue
		}
		if f.begin(ctx, b, logs) {
			logs = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-yield:
			return nil
		case <-b.stop.Done():
			return nil
		case w := <-b.leaving:
			b.wg.Go(func() { b.settle(ctx, w) })
		case a := <-f.answer:
			r, again := f.receive(a)
			took(r)
			read = again
		case <-b.poke:
			took(f.end())
			read = true
		case <-progress:
			idle.Reset(b.cfg.Keep)
		case <-idle.C:
			idle.Reset(b.cfg.Keep)
			if b.busy() {
				continue
			}
			if took(f.end()) > 0 {
				continue
			}
			// A last look, which also carries the last line of the log.
			logs = append(logs, line("INFO", "run: end, %d message(s) processed, lock released", b.count()))
			after, limit := b.room()
			r, err := b.open(ctx, after, limit, logs)
			if err != nil {
				return err
			}
			logs = nil
			if took(r) == 0 && !r.GetMore() {
				return nil
			}
			read = r.GetMore()
		}
	}
}

// WaitTo waits until every event up to head has its fate and returns how many got
// theirs meanwhile. ErrEnded when the batch ends first.
func (b *Batch) WaitTo(ctx context.Context, head int64) (processed int64, err error) {
	b.Wake()
	b.mu.Lock()
	before := b.done
	for b.prefix() < head && !b.ended {
		progress := b.progress
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("join batch: %w", context.Cause(ctx))
		case <-progress:
		}
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	if b.prefix() < head {
		return b.done - before, ErrEnded
	}
	return b.done - before, nil
}

func line(level, format string, args ...any) *registrypb.LogLine {
	return &registrypb.LogLine{Level: level, Text: fmt.Sprintf(format, args...)}
}

// Ended reports that Work is over, or about to be.
func (b *Batch) Ended() bool {
	if b.stop.Err() != nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}
