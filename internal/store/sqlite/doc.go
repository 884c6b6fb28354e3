// Package sqlite implements the storage contract in one SQLite database per thread, in the
// directory format of the external thread tool.
//
// Each method is one transaction on one database, durable where the contract says so, and
// checks the fence first when it is under a lease.
//
//	Engine -> pool ------> db (order of commits, chain) -> conn, mirror (events.jsonl), schema
//	   |                   ^
//	   +-> journal, consumer, memory (the x_ tables)
//
// The registry's own tables, which belong to no thread, are in homedb.
package sqlite
