// Package sqlite keeps the storage contract in one SQLite database per thread,
// in the directory format of the external thread tool.
//
// It owns which transaction does what: each method is one transaction on one
// database, durable where the contract says so, and begins with the fence when
// it is under a lease. What happens inside is told by noun:
//
//	Engine -> pool ------> db (order of commits, chain) -> conn, mirror (events.jsonl), schema
//	   |                   ^
//	   +-> inbox, journal, outbox, consumer (the x_ tables)
//
// The registry's own tables, which belong to no thread, are in homedb.
package sqlite
