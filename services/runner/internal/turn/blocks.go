package turn

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/chunk"
	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// goOn follows the blocks of an answer that did not come to its end.
const goOn = "Your answer was interrupted. The text above was sent, and the reader has it. " +
	"Continue directly behind its last character; repeat nothing of it and do not mention the interruption. If nothing is missing, answer NO_REPLY."

// writtenBefore are the messages that follow what was said, when the answer has begun in blocks: the model
// goes on behind them.
func writtenBefore(text string) []model.Message {
	if text == "" {
		return nil
	}
	return []model.Message{{Role: model.RoleAssistant, Text: text}, {Role: model.RoleSystem, Text: goOn}}
}

// blocks are the parts of one answer that are sent while the model is still writing it.
//
//	model --Add--> text --Next, Idle--> row and message, in one write --> B1
//
// A block is in the journal before it can be sent, so that the next try of the answer, in
// this process or another one, goes on behind it.
type blocks struct {
	t     *turn
	round int
	n     int // that are in the journal
	idle  time.Duration

	more chan struct{} // there is more text

	mu   sync.Mutex // guards text, which the goroutine of the model adds to
	text *chunk.Stream
}

var breaks = map[string]chunk.Break{"newline": chunk.Line, "sentence": chunk.Sentence}

// newBlocks returns the blocks of an answer, of which n with a text are in the journal; nil: it is sent
// at its end.
func (t *turn) newBlocks(round, n int, text string) *blocks {
	c := t.begun.GetConfig().GetBlocks()
	if c == nil {
		return nil
	}
	b := chunk.Bounds{Min: int(c.GetMinChars()), Max: max(int(c.GetMaxChars()), chunk.Least)}
	return &blocks{
		t: t, round: round, n: n, idle: max(c.GetIdle().AsDuration(), 100*time.Millisecond), more: make(chan struct{}, 1),
		text: chunk.NewStream(text, b, breaks[c.GetBreak()]),
	}
}

// add takes what was written. It does not block.
func (b *blocks) add(text string) {
	b.mu.Lock()
	b.text.Add(text)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// next takes a complete block, or what there is when idle is set. The number and the size of blocks are
// bounded: what is behind the last one is sent at the end.
func (b *blocks) next(idle bool) (chunk.Piece, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.n >= step.MaxBlocks || b.text.Reach() >= step.MaxBlockBytes:
		return chunk.Piece{}, false
	case idle:
		return b.text.Idle()
	}
	return b.text.Next()
}

// row is the next block as it is journaled.
func (b *blocks) row(p chunk.Piece) (*registrypb.Step, *registrypb.Saying) {
	b.n++
	return step.Block(b.t.steps.NextSeq(), b.round, b.n, p)
}

// write journals the blocks that are complete.
func (b *blocks) write(ctx context.Context, idle bool) error {
	for {
		p, ok := b.next(idle)
		if !ok {
			return nil
		}
		row, said := b.row(p)
		if err := b.t.steps.Write(ctx, []*registrypb.Saying{said}, row); err != nil {
			return err
		}
		fault.Point("B1")
		idle = false
	}
}

// remaining are the last blocks of a complete answer, but for the piece at its end, and how much of the text is
// in blocks then.
func (b *blocks) remaining() (says []*registrypb.Saying, rows []*registrypb.Step, reach int) {
	reach = b.text.Reach()
	pieces := b.text.Remaining()
	for _, p := range pieces[:max(len(pieces)-1, 0)] {
		if b.n >= step.MaxBlocks || p.Reach > step.MaxBlockBytes {
			break
		}
		row, said := b.row(p)
		says, rows, reach = append(says, said), append(rows, row), p.Reach
	}
	return says, rows, reach
}

// most is how many blocks are journaled in one write.
const most = 64

// writeBlocks journals the last blocks of an answer, with the answer where it calls no tools: else that is
// journaled with its calls.
func (t *turn) writeBlocks(ctx context.Context, says []*registrypb.Saying, rows []*registrypb.Step, a step.Answer, row *registrypb.Step) error {
	for len(says) > 0 {
		n := min(len(says), most)
		list := rows[:n:n]
		if n == len(says) && len(a.ToolCalls) == 0 {
			list = append(list, row)
		}
		if err := t.steps.Write(ctx, says[:n], list...); err != nil {
			return err
		}
		fault.Point("B1")
		says, rows = says[n:], rows[n:]
	}
	return nil
}

// tried is the end of a call of the model.
type tried struct {
	resp     model.Response
	try      modelcall.Try
	panicked *remotePanic
}

// call makes one call of the model on a goroutine of its own, and journals blocks while it
// writes. It returns when both are over.
func (b *blocks) call(ctx context.Context, req model.Request) (model.Response, modelcall.Try, error) {
	work, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	defer g.Wait()
	defer stop()
	end := make(chan tried, 1)
	g.Go(func() {
		var r tried
		defer func() {
			if p := recover(); p != nil {
				r.panicked = &remotePanic{p, debug.Stack()}
			}
			end <- r
		}()
		r.resp, r.try = b.t.model.Try(work, req, b.t.out.Delta)
	})
	idle := time.NewTimer(b.idle)
	defer idle.Stop()
	for {
		var err error
		select {
		case <-b.more:
			idle.Reset(b.idle)
			err = b.write(ctx, false)
		case <-idle.C:
			err = b.write(ctx, true)
		case r := <-end:
			if r.panicked != nil {
				panic(*r.panicked)
			}
			return r.resp, r.try, nil
		}
		if err != nil {
			return model.Response{}, modelcall.Try{}, err
		}
	}
}
