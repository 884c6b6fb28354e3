// Package fault defines the error that a person or a program gets: a gRPC code, a
// machine-readable reason, what happened and how to fix it.
//
// It promises:
//   - An [Error] survives the wire: [Status] at the server's edge and [From] at
//     the client's give the same reason, words, metadata, fields and retry time.
//   - Nothing that was not written for a reader leaves a process: the cause in
//     [Error.Err] is for logs, and an error of unknown kind becomes INTERNAL
//     with a fixed text.
//   - Every reason is a constant in reasons.go and a row in docs/errors.md.
//   - [Line] and [JSON] are one line each, whatever an id or a peer contained.
//
// It does not log, does not print and does not exit: cmd does, with [ExitCode].
// It also holds the failpoint hook ([Point]), because the instants where a crash
// must be survived are named in the same packages that return these errors.
//
// The path of an error, with the code that acts:
//
//	domain error ----> *Error ----> status + details ----> *Error ----> one line
//	(sentinel)   edge file     Status             wire    From     Line, JSON,
//	             of a service  (one interceptor)          (client) ExitCode
package fault
