// Package serve owns how a service of this project is served: its socket, its
// access table and what every call passes before and after the handler.
//
// It promises:
//   - The socket has mode 0600 in a directory of mode 0700 from the first instant
//     it can be seen; a stale one is replaced, a live one never.
//   - Nobody calls a method that has no rule: [New] refuses to start with one, and
//     an empty rule allows nobody. A caller on a Unix socket has our user id and
//     shows a token; one alone is not enough. A caller on TCP has a certificate
//     (package rpc/mtls), and calls no faster than its rate (rate.go).
//   - What was refused, and what the auditor wants to know, is written down before
//     the call is answered, and the latter before it happens.
//   - A handler sees a request that passed its declared rules, a deadline that
//     leaves time for the answer, and never a call whose time is already over.
//   - Every error leaves as a status with a reason (package fault). One that
//     nobody wrote for a reader leaves as INTERNAL with a hidden text, and its
//     chain is logged once under the request id. A call that went well is not
//     logged.
//   - A panic ends its call, not the process.
//
// It does not know what a service does.
//
// The way of a call, outermost first:
//
//	recovery > call (request id) > prometheus > edge (errors, panics, log) >
//	access > deadline > validate > handler
//
// The edge stands inside prometheus and around the checks, so that refusals are
// counted by their code and carry a reason like any other error.
//
// The life of a server:
//
//	        New             Run               ctx done
//	(none) -----> BOUND ----------> SERVING -----------> DRAINING --> STOPPED
//	               |                                      |  handlers end, or
//	               +--- Close ---> STOPPED                +- grace or Abort: Stop
//
// DRAINING: health says NOT_SERVING, rpc.Draining is closed, calls of rules with
// EndOnDrain are ended with UNAVAILABLE, new calls are refused, the rest may
// finish within the grace.
package serve
