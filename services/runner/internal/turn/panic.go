package turn

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// reportPanic logs the value and the stack of a panic that was recovered, with args, and
// returns what everyone may read of it: the journal and the peer get nothing of a value
// that is not the runtime's own, since it may hold words or keys.
func reportPanic(log *slog.Logger, p any, args ...any) string {
	stack := debug.Stack()
	if of, ok := p.(toolset.Panic); ok { // of a call on another goroutine
		p, stack = of.Value, of.Stack
	}
	log.With(args...).Error("turn panicked", "panic", fmt.Sprint(p), "stack", string(stack))
	if e, ok := p.(runtime.Error); ok {
		return e.Error()
	}
	return "the runner's log says what"
}
