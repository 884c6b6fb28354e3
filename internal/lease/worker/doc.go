// Package worker keeps the leases of a process that works under them.
//
// A [Worker] works on what is due: it polls the
// registry for agents that have work, starts the work of each under its lease,
// renews the lease meanwhile, and gives it back. The runner and the deliverer are
// its two users; what they do under a lease is their [Work]. [Hold] is for a resource that
// a process chooses, such as a channel account of a gateway: it waits until the lease is
// free and keeps it, until the user gives it back. The rest of this page is about the Worker.
//
// # One lease
//
//	      AcquireDueLease,
//	      AcquireLease           Begin           out of work
//	idle -----------------> granted --> working ------------> keeping
//	 ^                         |        |     ^                |  |
//	 |                         |        |     +----- Wake -----+  |
//	 |                         | Close  | yield,                  | yield, Close, or
//	 |                         |        | Close                   | GrantKeep is over
//	 |                         v        v                         v
//	released <-ReleaseLease- yielded: what is under way finishes, nothing begins
//
//	granted, working, keeping --renewal refused, or none in time--> lost: all stops
//	                            at once, nothing is released, the agent is idle here
//
// The lease is renewed in the states working and keeping, by a [lease.Keeper]. How
// long it is kept without work is lease.GrantKeep, which the Work counts.
//
// # The poll
//
// One long poll at a time is open at the registry. It grants new leases, and names
// held ones that have more work.
//
//	response                      what follows
//	fresh grant                   the Work of the agent starts
//	work or news of a held lease  Wake
//	work of an unknown lease      ReleaseLease: its work is due again
//	news of an unknown lease      the same request again, which returns the lease
//	empty, long before its time   a wait: the registry is shutting down
//	error                         a wait, then the same request again
//
// A request that is repeated keeps its id, so a lost response loses no grant. Waits
// are pause.Backoff from 50 ms to 2 s with full jitter. At its limit of
// leases a worker polls for news only, for 250 ms, and ends the poll as soon as it may
// hold another lease.
//
// # Promises
//
//   - At most one Work of an agent runs here, also when its lease changed tokens:
//     the next one begins after the earlier one has returned.
//   - The trust in a grant is counted from the instant before it was first asked
//     for. A grant for which a renewal is due already is renewed before its Work
//     begins.
//   - One call per grant, renewal and release.
//   - When Run returns nothing runs here, and each lease was given back or is lost.
//     A release that fails is not repeated: the lease expires.
//
// It does not decide what is due, does not know what the work is, and does not
// bound it: its user decides how many leases there may be.
package worker
