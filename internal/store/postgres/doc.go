// Package postgres keeps the storage contract in PostgreSQL, for more than one machine:
// any number of registries serve it at once. An installation has one database.
//
// It owns which transaction does what. Each method of the contract is one
// transaction on one thread, the end of a turn on two, and goes to the server twice:
//
//	load:   BEGIN, lease (FOR SHARE) and the thread's row (FOR NO KEY UPDATE), what the step reads
//	        -- decided here, in Go --
//	apply:  what the step writes, COMMIT
//
// Both trips are pipelined, so a step costs two round trips however many statements
// it has. READ COMMITTED is enough: the lock on the thread's row puts the writers of
// a thread in an order, every statement behind it sees what was committed before the
// lock was got, and the fence is compared under a lock that a change of holder waits
// for. What happens inside is told by noun:
//
//	Engine -> pool (connections) -> schema (tables)
//	   +-----> unit (transaction, fence, events, chain)
//	   +-----> inbox, journal, outbox, consumer, memory, prune, erase
//	   +-----> leases, agents, home (tables that belong to no thread)
//
// A commit whose answer is lost with the connection is ErrIO: the caller repeats the
// step, and its key says what had become of it. A connection that was dead before
// anything was read is replaced, and nobody is told.
package postgres
