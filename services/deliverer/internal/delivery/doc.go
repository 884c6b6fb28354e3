// Package delivery sends the outbound events of an agent: in event order within
// a thread, concurrently across threads, under one lease, until nothing is left
// to send.
//
// # State of a lane
//
// A lane is one thread that has something to send. It has a goroutine only
// while it runs; a thread that is idle has no lane, and one that waits has a
// timer.
//
//	      Wake               worker free
//	none ------> queued ---------------------> running ----+ a burst is over:
//	 ^             ^                           |  |  ^     | back to the end
//	 |             +---------------------------|--|--------+ of the queue
//	 |             |      timer, Wake          |  |
//	 |             +--------- parked <---------+  |
//	 |                   WAIT, breaker open,      |
//	 |                   journal away             |
//	 +--------------------------------------------+
//	      IDLE, closing, lease lost
//
// # One message
//
// With every breaker of its agent closed a message costs two calls of the journal, and in a
// row of messages one, since Finish begins the next in the same transaction:
//
//	Begin (D1) -> breaker -> D2 send -> Finish (D3, D4) and Begin of the next
//
// Once a destination of the agent is down, a lane that starts peeks first (Begin with
// peek, which counts nothing), asks the breaker of the destination for a permit, and
// begins only with it. A send that was begun and then finds its breaker open is put back
// as Unavailable. Either way an outage spends no attempt. When the breaker is closed and
// enough other messages are under way to the destination, the lane waits for one of them
// to end, with what it has begun.
//
// # A message in parts
//
// A message to the outside that is longer than its channel takes is cut by package
// chunk, and its parts leave under the one attempt:
//
//	Begin (D1) -> send 1 -> Finish (part) -> send 2 -> ... -> Finish (D3)
//
// The journal keeps how far it is, so that a part that was recorded never leaves
// again; the one that was under way when a process died does (window B), under the
// same key and flagged.
//
// # A change of an earlier message
//
// An event with an action changes what an earlier one has sent, by its id at the
// platform: the channel edits, deletes or marks it (D2). Done twice it is done once, so
// a change that was under way when a process died is made again. A channel without the
// means, and a message without an id, are Rejected.
//
// # Promises
//
//   - The attempt is on record before anything is sent, and nothing is sent or
//     recorded under a lease that is no longer trusted.
//   - Each send that a breaker allowed ends in one Record.
//   - A send whose record did not get through is recorded again and not sent
//     again for as long as the lease lives.
//   - A send that failed and may have left all the same is recorded so: its next
//     send is flagged.
//   - Retries never wait for a new event, and nothing here spins: a lane that
//     cannot go on is parked on a timer of at least a millisecond.
//
// # Ends
//
// An agent's drain ends when it had nothing to do for the time that a grant is
// kept, when it is asked to yield, or by Close; the send under way
// is finished and recorded, none is begun. Abort stops that send too. Then a
// message that certainly was not sent is put back; one that may have been sent
// stays as it is in the journal, sending, which the next holder treats as a
// crash: same key, flagged, no attempt spent (window B). When the lease is lost
// everything stops at once and nothing is recorded.
//
// It depends on no gRPC and no database, takes no lease and gives none back, and
// leaves attempts, ages and waits between tries to the journal.
package delivery
