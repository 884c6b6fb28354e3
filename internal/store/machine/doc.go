// Package machine decides what happens to inbox events and to deliveries: the steps
// T1 to T9 and D1 to D4 as pure functions over rows.
//
//	         Begin T1,T2        Record (failed try)
//	queued --------> claimed <--------------------> waiting
//	                   |  Record T3,T4,T6 and Steer keep it claimed
//	                   |  Finish T7,T9, or Begin past the crash limit
//	                   v
//	                 done (fate) ---- Settle T8 ----> acknowledged
//
//	         Next D1               Sent D3, D4
//	pending ----------> sending ---------------> sent | dead | skipped
//	   ^                   |
//	   +-------------------+  failed: wait until not_before
//
// An engine runs a transition in one transaction, in three parts:
//
//	BeginNeeds(b)  -->  the engine loads these rows into a Thread (or an Inbox)
//	Begin(t, b)    -->  the decision; the rows of t are as they must be stored
//	               -->  the engine saves the rows that changed
//
// A claim of an event that was claimed before, and a search for a delivery whose first
// candidates are dead, need more rows: ReclaimNeeds and Next say so.
//
// The package promises that both engines decide alike: the decision exists once, and
// depends on nothing but its arguments. Time and ids are among the rows (Thread.Now,
// Thread.NextID). A transition that is repeated changes nothing and answers the same.
// On an error the rows must not be saved.
//
// It contains no SQL, no clock and no I/O, and starts nothing. The fence, the seal,
// unique keys, ids, the hash chain and the durability of a commit belong to the engines,
// and so do reads that decide nothing: pages, accounts, sums.
package machine
