// Package wire implements what the drivers of network providers have in common: which
// endpoint is acceptable, how long a call may be silent, and how an answer or a lost
// connection becomes a [model.Error].
//
// It promises: an error made here shows no key, neither the call's own nor one that looks
// like a key; what is read of an answer is bounded in bytes, after it
// was decompressed, and of an error answer in time too; no redirect is followed; the end of a call by its caller
// (Canceled, Timeout) is distinguished from our own timers (Unavailable, CutStream).
//
// What it does not do: it reads no provider's format of answers and makes no request.
package wire
