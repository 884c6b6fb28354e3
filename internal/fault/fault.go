package fault

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
)

// Error is a failure with a reader. The zero value of the optional fields means
// "nothing to say"; Code and Reason are always set by [New].
type Error struct {
	// Code is the gRPC status code that carries the error.
	Code codes.Code
	// Reason is one of the constants of reasons.go.
	Reason string
	// What describes what happened, without a trailing full stop.
	What string
	// Fix says what the reader can do about it; it may be empty.
	Fix string
	// Meta holds facts for programs (ids, limits), never secrets.
	Meta map[string]string
	// RetryAfter is how long waiting helps; 0 means no such advice.
	RetryAfter time.Duration
	// Fields names the arguments that were wrong.
	Fields []Field
	// Err is the cause. It goes into logs only, never over the wire.
	Err error
}

// Field is one wrong argument.
type Field struct {
	// Name is the path of the argument, like events[3].source.
	Name string
	// Problem says what is wrong with it.
	Problem string
}

// New makes an error. reason is a constant of this package.
func New(code codes.Code, reason, what, fix string) *Error {
	return &Error{Code: code, Reason: reason, What: what, Fix: fix}
}

// Usage makes the error of a wrong command line: exit code 2.
func Usage(what, fix string) *Error {
	return New(codes.InvalidArgument, WrongUsage, what, fix)
}

// Wrap returns a copy of e with cause as its Err, so that a package-level Error
// can be reused. A nil e returns nil.
func Wrap(e *Error, cause error) *Error {
	if e == nil {
		return nil
	}
	c := *e
	c.Err = cause
	return &c
}

// Error is What alone: the cause is not for every reader (see [Chain]).
func (e *Error) Error() string { return e.What }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err, found on either side of the wire, has this reason.
func Is(err error, reason string) bool {
	return err != nil && From(err).Reason == reason
}

// Chain is the complete text of err for a log line: its own text and then, where
// an [Error] hides a cause, that cause as well.
func Chain(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if e, ok := errors.AsType[*Error](err); ok && e.Err != nil {
		text += ": " + Chain(e.Err)
	}
	return text
}

// fromContext turns the two context errors into an Error, else nil.
func fromContext(err error) *Error {
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Code: codes.Canceled, Reason: Canceled, What: "the call was canceled", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{
			Code: codes.DeadlineExceeded, Reason: Deadline,
			What: "the call did not finish in time", Fix: "try again, or allow more time", Err: err,
		}
	}
	return nil
}
