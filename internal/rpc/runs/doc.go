// Package runs makes calls about one run for clients that do not know which runner has
// it: it finds the runner, and follows the run from runner to runner.
//
//	caller --> registry: FindRunner(run) --> lease: holder, address, token
//	   |          ^
//	   |          +-- answers again when another runner has the agent, or at the run's end
//	   v
//	runner: StreamRun(after seq) ... broken or moved ... StreamRun(after seq) at the next
//
// The client looks up and dials; no registry relays a stream: live output is in the memory
// of one runner, a client that may watch it presents a certificate or a token to that
// runner itself, and a registry that relayed streams would be one more place that can be
// slow or fail in the middle of one.
//
// It promises: items arrive in rising seq, none twice and none left out, whichever
// runners they come from, because numbers rise over leases and the journal yields the
// same ones; the output of a runner that lost its lease is voided by the item that reports
// this (lifecycle restart); a runner that answers under the address of another one is not
// believed; a stream does not hang on a runner that became unreachable, because the
// registry reports when another runner has the run. A runner that the client cannot reach
// costs the live view and nothing else: the outcome comes from the journal, through any
// runner that can be reached, else from the registry alone (the reply and how the run
// ended, without its steps).
//
// An abort goes to the runner that executes the run. Where there is none, it is committed
// at the registry under a lease of this package, so that no runner is needed. A runner
// that executes the run and cannot be reached from here learns of the abort from the
// registry, in the response to its next renewal: the call waits for the end of the run as
// long as it may, repeats the request meanwhile, and then reports the wait.
//
// It does not dial: the caller provides the connection to an address, and the identity.
package runs
