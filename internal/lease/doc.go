// Package lease decides which process may act on a resource now: it grants that right
// for a limited time, decides when the time is over, and keeps the holder from trusting
// its grant for too long.
//
// # Terms
//
// A resource is a name for something that at most one process may work on. Each
// agent has two: AgentResource, its inbox, and DeliverResource, everything it
// sends. Each channel account that connects to its platform has one, ChannelResource:
// what people write to it. A holder is one process; NewHolder gives it a name that no other
// process ever had. A term is one holder's hold on one resource, from a grant
// to its end, and it is known by its fencing token: a number that rises strictly
// from term to term of a resource, and that travels with everything the holder
// does. A repeated Acquire with the same request id and a renewal are the same
// term; whatever comes after an end is another one.
//
// # Authority
//
// The Table, of which only the registry has one, is authoritative for
//
//   - who holds a resource, and under which token
//   - whether a term may be renewed
//   - when a term is over
//
// It measures time on its own monotonic clock alone. No clock of another machine
// and no wall time takes part; Record.Expires is for people.
//
// The Ledger is authoritative for one thing: the highest token. It is on disk
// before a grant is returned, so no crash can lead to a number being granted
// twice. Two more records of it exist, one on either side: the fence row of the
// resource's own inbox (Floor), which travels with a directory that is moved or
// restored, and the term in the table's memory. A new token is above all three.
//
// The holder is authoritative for nothing. It bounds how long it trusts the
// table's last response, and stops earlier than it would have to.
//
// # State of a resource
//
//	              Acquire: token + 1, on disk, then returned
//	     +---------------------------------------------------+
//	     |                                                   v
//	+----+---+                Release                 +-------------+   Renew, or the
//	|  free  |<---------------------------------------+    held     |--+ same request:
//	+--------+                                        |  by token   |<-+ deadline =
//	     ^                                            +-------------+    now + ttl
//	     |                                               |       ^
//	     |                            deadline passed,   |       |  Acquire:
//	     |                            or holder dead     v       |  token + 1
//	     |                                            +-------------+
//	     +--------------------------------------------+    ended    |
//	       Reap, which reports it once:               +-------------+
//	       its work is due again
//
// There is no arrow from ended back to the same term: an expired lease is never
// revived, even if nobody wanted it in the meantime. An Acquire that meets an
// expired term, or that of a dead holder, ends it first, then saves the new
// token, then grants; in between nobody holds the resource. When that save fails
// the resource stays ended and the number is not used again.
//
// A registry that starts loads the records and treats each unreleased one as
// held for a whole ttl from then, unless its holder is dead. A living holder
// notices nothing but one or two failed renewals, and keeps its token.
//
// # How a term ends without a release
//
// The death of a holder must not cost a ttl. Therefore each holder on the machine of
// the registry keeps an exclusive flock on run/holders/<holder>.lock, which the kernel
// releases when the process dies, for whatever reason. When the registry can take that lock the holder is dead, and its
// leases are free at once. A holder that is merely stopped keeps its lock, and a
// remote one has none; for these the ttl is waited out.
//
//	holder                    file         lock        its leases
//	alive                     there        held        live while renewed
//	stopped (SIGSTOP), stuck  there        held        end by ttl
//	killed                    there        free        end at once
//	closed                    gone, mark   -           end at once
//	remote, other directory   no mark      -           end by ttl
//
// The mark in a local holder's id names the directory its file was made in, on
// that machine and boot. Without it a missing file would prove nothing.
//
// # Trust window
//
// A holder counts from the instant before its request, the table from the instant of
// its response, which is later; and the holder subtracts a Margin:
//
//	valid_until = sent + ttl - margin
//
//	holder   sent                                valid_until
//	          |------------- trusts -----------------|.. starts nothing ..
//	           \            ^                        |
//	            \          / answer                  |<--- margin --->|
//	             v        /                          |                |
//	table         |---------------------- live --------------------------| free
//	             now                                                 now + ttl
//
// So the holder stops first, whatever the delay of the network. Keeper does the counting:
// it renews every ttl/3, tries again after an error for as long as the window is
// open, and ends its Context with the cause ErrLost when the registry says that
// the term is over, or when the window closes. After that the holder starts no
// model call, no tool, no send and no transaction, and kills its children. With
// the default ttl of 15 s the margin is 3 s, a renewal is due every 5 s, and 12 s
// without one end the work.
//
// # Fence
//
// A trust window keeps an honest holder from acting too late. It cannot stop a
// process that read its clock, was stopped for a minute, and then writes.
// That write is refused where it arrives, by two comparisons in its
// own transaction:
//
//	BEGIN IMMEDIATE
//	 1. Table.Check(resource, token)      is this the current, unexpired term?
//	 2. token >= x_fence[resource]        has a later holder sealed it?
//	    x_fence[resource] = token         if it rises
//	 3. the write
//	COMMIT
//
// The first alone leaves a gap: the term may end between Check and COMMIT, and
// the next holder may by then have begun. The second closes it. A new holder
// writes its token to x_fence before it reads anything to decide by (the seal),
// and one database has one writer at a time. So the late transaction commits
// before the seal, in which case the new holder reads what it wrote, as if it
// had come in time; or it begins after the seal and fails on the second line. It
// can never commit unseen in between. The second alone would let an expired
// holder write until somebody succeeds it, and would know nothing of a term that
// ended in a database its successor has not touched yet; that is what the first
// is for.
//
// The lease of a channel account has no database of its own: its messages go to the
// inboxes of several agents. A write under it makes the first comparison alone, and
// seals nothing. The message that a late holder stores in the gap is the one that the
// next holder receives again, under the same key, and so a repeat. A database that
// several registries share compares in the transaction, under a lock that a change of
// holder waits for: it has no gap.
//
// # Promises
//
//   - At every instant at most one token of a resource passes Check.
//   - The tokens that are granted for a resource rise strictly, over crashes and
//     restarts of the registry, failed saves, and, given the inbox's Floor, moved
//     or restored directories.
//   - No holder whose clock runs trusts a term that the table has ended by its
//     deadline. When the table ends it for another reason (a Release, a holder
//     found dead) there is nobody left to trust it.
//   - A lost response costs nothing: the same request returns the same
//     term while that is live, and Release may be repeated.
//   - Renew, Check and Release's effect wait for no disk. Grants of different
//     resources do not wait for one another's disk either.
//   - A restart of the registry takes no lease from a living holder that can
//     reach it within its window.
//
// # What is not promised
//
//   - That a holder stops at once when its lease is lost: it learns of that from its
//     next renewal, or from the fence.
//   - Anything about a clock that stands still. On a machine that is suspended a
//     holder may wake and still trust a term that is long over; the fence
//     refuses its writes, but a tool or a send that it starts in that moment
//     happens.
//   - Fairness. The first Acquire after an end gets the resource; a waiter brings the
//     end about with RequestYield.
//   - That a resource stays free between an expiry and its Reap.
//   - Anything about a ledger that was lost or set back under a living holder:
//     a token that no inbox has seen yet may then be granted again. A backup
//     takes the ledger last for that reason.
//   - Liveness of holders over a network file system, or after somebody removed
//     a living holder's file, which amounts to declaring it dead. Then a lease
//     may change hands early; the fence holds all the same.
//
// The package knows no gRPC and no SQL. It does not decide who should get work
// next, does not retry an Acquire, and does not store x_fence: these belong to
// dispatch, to the holder, and to the store. Package runlock shows a lease to tools that
// do not know leases.
package lease
