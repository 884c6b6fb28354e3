// Package runs owns the calls about one run for who does not know where it is worked
// on: it finds the runner, and follows the run from runner to runner.
//
//	caller --> registry: FindRunner(run) --> lease: holder, address, token
//	   |          ^
//	   |          +-- answers again when another runner has the agent, or at the run's end
//	   v
//	runner: StreamRun(after seq) ... cut off or moved ... StreamRun(after seq) at the next
//
// The caller asks and dials, and no registry passes a stream on: what is said while it
// is said is in the memory of one runner, whoever may watch it shows a certificate or a
// token to that runner itself, and a registry that carried streams would be one more
// place that can be slow or die in the middle of one.
//
// It promises: items come in rising seq, none twice and none left out, whichever
// runners they come from, because numbers rise over leases and the journal tells the
// same ones; what a runner said that lost its lease is voided by the item that says so
// (lifecycle restart); a runner that answers under an address of another one is not
// believed; a stream does not hang on a runner that cannot be reached any more, for the
// registry tells when the run is somebody else's. A runner that the caller cannot reach
// costs the live view and nothing else: the end comes from the journal, by any runner
// that can be reached, else from the registry alone (the reply and how it ended, without
// the steps on the way).
//
// An abort goes to the runner that works on it. Where none does, it is committed at the
// registry under a lease of our own, so that no runner needs to be there. One that works
// on it and cannot be reached from here is told by the registry, with the answer to its
// next renewal: the call waits for the end of the run as long as it may, tells the wish
// again meanwhile, and then says so.
//
// It does not dial: how to reach an address, and as whom, is its caller's to say.
package runs
