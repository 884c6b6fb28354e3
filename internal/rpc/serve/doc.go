// Package serve runs the gRPC server of a service of this project: its socket, its
// access table and the interceptors around the handler.
//
// It promises:
//   - The socket has mode 0600 in a directory of mode 0700 from the moment it
//     exists; a stale one is replaced, a live one never.
//   - A method without a rule cannot be called: [New] refuses to start with one, and
//     an empty rule allows nobody. A caller on a Unix socket has our user id and
//     a token; one of the two is not enough. A caller on TCP has a certificate
//     (package rpc/mtls), and its rate is limited (rate.go).
//   - A refused call is recorded in the audit log before it is answered; a call that
//     the audit log must contain is recorded before it is executed.
//   - A handler gets a request that passed its declared rules, a deadline that
//     leaves time for the answer, and never a call whose deadline has passed.
//   - Every error is returned as a status with a reason (package fault). One without
//     a text for readers is returned as INTERNAL with a hidden text, and its chain is
//     logged once with the request id. A successful call is not logged.
//   - A panic ends its call, not the process.
//
// It does not know what a service does.
//
// The interceptors of a call, outermost first:
//
//	recovery > call (request id) > prometheus > edge (errors, panics, log) >
//	access > deadline > validate > handler
//
// The edge is inside prometheus and outside the checks, so that refusals are counted
// by their code and have a reason like any other error.
//
// The life cycle of a server:
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
