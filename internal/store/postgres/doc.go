// Package postgres implements the storage contract in PostgreSQL, for more than one
// machine: any number of registries use it at once. An installation has one database.
//
// Each method of the contract is one transaction on one thread, the end of a turn on two,
// and needs two round trips to the server:
//
//	load:   BEGIN, lease (FOR SHARE) and the thread's row (FOR NO KEY UPDATE), what the step reads
//	        -- decided here, in Go --
//	apply:  what the step writes, COMMIT
//
// Both trips are pipelined, so a step costs two round trips however many statements
// it has. READ COMMITTED is enough: the lock on the thread's row serializes the writers
// of a thread, every later statement sees what was committed before the lock was
// acquired, and the fence is compared under a lock that a change of holder waits for.
//
//	Engine -> pool (connections, migrations)
//	   +-----> unit (transaction, fence, events, chain)
//	   +-----> journal, consumer, memory, erase
//	   +-----> leases, agents, home, agentlog, notify (tables that belong to no thread)
//
// A commit whose answer is lost with the connection is ErrIO: the caller repeats the
// step, and its key says whether it was committed. A connection that was dead before
// anything was read is replaced, and no error is reported.
package postgres
