// Package wire owns what the drivers of network providers have in common: which
// endpoint is acceptable, how long a call may be silent, and the one table from
// what went wrong to a class of [model.Error].
//
// It promises: an error made here shows no key, neither the call's own nor one
// that looks like a key; what is read of an error answer is bounded; the
// caller's end of a call (Canceled, Timeout) is told apart from our own timers
// (Unavailable, CutStream).
//
// What it does not do: it speaks no provider's format and makes no request.
package wire
