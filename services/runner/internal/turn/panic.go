package turn

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
)

// remotePanic is the value of a panic that is passed on from another goroutine, with the stack there.
type remotePanic struct {
	value any
	stack []byte
}

// reportPanic is [reportPanic] for what the turn does.
func (t *turn) reportPanic(p any, args ...any) string {
	return reportPanic(t.Logger, p, append(args, "agent_id", t.w.AgentID, "event_id", t.w.InboxID)...)
}

// reportPanic logs the value and the stack of a panic that was recovered, with args, and
// returns what everyone may read of it: the journal and the peer get nothing of a value
// that is not the runtime's own, since it may hold words or keys.
func reportPanic(log *slog.Logger, p any, args ...any) string {
	stack := debug.Stack()
	if of, ok := p.(remotePanic); ok {
		p, stack = of.value, of.stack
	}
	log.With(args...).Error("a panic was recovered", "panic", fmt.Sprint(p), "stack", string(stack))
	if e, ok := p.(runtime.Error); ok {
		return e.Error()
	}
	return "the runner's log says what"
}
