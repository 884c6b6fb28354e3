package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/theclaw/agents/internal/fault"
)

// Class is the kind of a failure; it decides what happens next.
//
//	class          another try  charged  meaning
//	RateLimited    yes          no       429; RetryAfter may be set
//	Unavailable    yes          no       5xx, overload, no answer in time
//	Unreachable    yes          no       refused, no route, no name: provider down
//	CutStream      yes          yes      the answer broke off
//	BadResponse    yes          yes      the answer makes no sense
//	Auth           no           -        key missing, wrong, blocked or without credit
//	Config         no           -        unknown provider or model, request refused
//	ContextTooLong no           -        prompt over the model's limit: compact, then call anew
//	Policy         no           -        content filter
//	Canceled       no           -        our own cancellation
//	Timeout        no           -        the turn's time is used up
//	TooLarge       no           -        the answer is larger than its limit; the same call costs the same again
type Class int

// The classes. The zero value is none of them.
const (
	RateLimited Class = iota + 1
	Unavailable
	Unreachable
	CutStream
	BadResponse
	Auth
	Config
	ContextTooLong
	Policy
	Canceled
	Timeout
	TooLarge
)

var classes = [...]struct {
	text, reason, fix string
	recoverable       bool
}{
	RateLimited:    {"rate limited", fault.ModelRateLimit, "wait, or raise the limit of the provider's account", true},
	Unavailable:    {"provider failed", fault.ModelUnavailable, "wait; see the provider's status page if it lasts", true},
	Unreachable:    {"provider unreachable", fault.ModelUnavailable, "check the network and the provider's base_url", true},
	CutStream:      {"answer broke off", fault.ModelBadResponse, "wait; check proxies between here and the provider if it lasts", true},
	BadResponse:    {"answer not understood", fault.ModelBadResponse, "check that base_url is an OpenAI-compatible endpoint, or use another model", true},
	Auth:           {"key refused", fault.ModelAuth, "check the provider's api_key reference and its account", false},
	Config:         {"request refused", fault.ModelConfig, "check pai.provider and pai.model in the agent's config.yaml and the provider settings", false},
	ContextTooLong: {"prompt too long", fault.ModelContextTooLong, "lower context_window so that compaction starts earlier, or use a model with a larger window", false},
	Policy:         {"refused by the provider's content policy", fault.ModelPolicy, "rephrase the message", false},
	Canceled:       {"canceled", fault.Canceled, "send the message again if the answer is still wanted", false},
	Timeout:        {"out of time", fault.Deadline, "ask for less in one message, or use a faster model", false},
	TooLarge:       {"answer too large", fault.ModelBadResponse, "ask for less in one message, raise max_output_tokens, or let the model think less", false},
}

func (c Class) known() bool { return c > 0 && int(c) < len(classes) }

// String is the class in a few words.
func (c Class) String() string {
	if !c.known() {
		return "unknown failure"
	}
	return classes[c].text
}

// Error is why a call gave no answer.
type Error struct {
	Class Class
	// Status is the provider's HTTP status; 0 when there was none.
	Status int
	// RetryAfter is how long the provider asked us to wait; 0 when it did not.
	RetryAfter time.Duration
	// Tries is how many tries this one stands for, where the driver's program
	// repeats calls itself; 0 means one.
	Tries int
	// Message is fit for a person and holds no secret.
	Message string
	// Err is the cause, for errors.Is and logs.
	Err error
}

// Errorf makes an Error of the class with a formatted message.
func Errorf(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// Error is the class, the status when there is one, and the message.
func (e *Error) Error() string {
	switch {
	case e.Status != 0 && e.Message != "":
		return fmt.Sprintf("model: %s (%d): %s", e.Class, e.Status, e.Message)
	case e.Message != "":
		return fmt.Sprintf("model: %s: %s", e.Class, e.Message)
	}
	return "model: " + e.Class.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Recoverable reports whether the same request may succeed later (S0-86,
// S0-87).
func (e *Error) Recoverable() bool { return e.Class.known() && classes[e.Class].recoverable }

// CountsTry reports whether the failed call is charged to the message's tries.
// A provider that is unavailable charges nothing, so an outage kills no message;
// neither does our own cancellation.
func (e *Error) CountsTry() bool { return !e.Unavailable() && e.Class != Canceled }

// Unavailable reports whether the provider gave no answer and may give one later: it
// is waited for.
func (e *Error) Unavailable() bool {
	return e.Class == RateLimited || e.Class == Unavailable || e.Class == Unreachable
}

// RefusesContent reports whether the provider refuses what was said, so that it refuses each
// later prompt with these words in it too.
func (e *Error) RefusesContent() bool {
	switch e.Class {
	case Policy, ContextTooLong:
		return true
	case Config:
		return e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity
	default:
		return false
	}
}

// In is the same failure in another class.
func (e *Error) In(c Class) *Error {
	other := *e
	other.Class = c
	return &other
}

// Reason is the fault reason of the class, a constant of package fault.
func (e *Error) Reason() string {
	if !e.Class.known() {
		return fault.Internal
	}
	return classes[e.Class].reason
}

// Fix says what a person can do about it.
func (e *Error) Fix() string {
	if !e.Class.known() {
		return classes[Unavailable].fix
	}
	return classes[e.Class].fix
}

// AsError finds the Error in err's chain. Context errors become Canceled or
// Timeout; anything else, which a driver should not return, is BadResponse.
// It is nil exactly when err is nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Class: Canceled, Message: "the run was canceled", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Class: Timeout, Message: "the turn's time is used up", Err: err}
	}
	return &Error{Class: BadResponse, Message: "the driver failed in a way it has no word for", Err: err}
}
