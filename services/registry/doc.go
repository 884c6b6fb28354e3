// Package registry is the registry service: the only one that opens databases,
// settings and memory, and so the one place where an event is accepted, claimed,
// answered and accounted for.
//
//	push (RPC) --------+
//	foreign push ------+--> inbox --> due --> lease --> OpenBatch, BeginTurn ...
//	  (watch, sweep)                              \--> conversation thread
//	                                                     \--> due --> BeginDelivery ...
//
// It promises that every write made under a lease is fenced in its own transaction,
// that an acknowledged push is on disk, that an agent whose directory breaks or
// vanishes is reported and affects no other agent, and that workers are notified of
// work without polling. It runs no model, no tool and no channel, and starts no
// program.
//
// One registry serves a home (NewStandalone): it holds an OS lock on run/registry.lock
// while it runs. Several may serve one database (NewCluster), each with a home for its
// own sockets; then each decision is made by a transaction of the database. The program
// opens the storage engine and passes it in.
//
//	agents  threads  leases  turns  deliveries  approvals  workdirs
//	   \       |       |       |        |           |         /
//	    +--- the interfaces that each service declares for what it needs --+
//	                 |                                  |
//	             standalone                          cluster
//
// This package holds the configuration, the access table, the start and the end. Below
// internal/ there is a package for each gRPC service, one for each of the two
// implementations of what the services need, and the nouns that they share.
package registry
