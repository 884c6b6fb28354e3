// Package broke owns what is told of a panic.
//
// It promises that the log has its value and its stack, and that what everybody may read,
// the journal and the peer among them, has nothing of a value in it that is not the
// runtime's own: nobody knows which words or keys it holds. It catches nothing.
package broke

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
)

// Tell logs what a deferred function has caught, beside args, and answers what everybody
// may read of it.
func Tell(log *slog.Logger, p any, args ...any) string {
	log.With(args...).Error("turn panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if e, ok := p.(runtime.Error); ok {
		return e.Error()
	}
	return "the runner's log says what"
}
