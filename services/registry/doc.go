// Package registry is the registry service: the only one that opens databases,
// settings and memory, and so the one place where an event is accepted, claimed,
// answered and accounted for.
//
//	push (RPC) --------+
//	foreign push ------+--> inbox --> due --> lease --> OpenBatch, BeginTurn ...
//	  (watch, sweep)                              \--> conversation thread
//	                                                     \--> due --> BeginDelivery ...
//
// It promises that every write made under a lease is fenced in its own
// transaction, that an acknowledged push is on disk, that an agent whose
// directory breaks or vanishes is reported and stops nobody else, and that
// whoever asks for work is told of it without polling. It runs no model, no
// tool and no channel, and starts no program.
//
// One registry serves a home: it holds an OS lock on run/registry.lock for its
// life. Several may serve one database, each with a home for its own sockets
// (Config.DSN): then each decision is the database's, see package core. Here are its configuration, its access table, and its start and end;
// below internal/ there is a room for each gRPC service (agentapi, threadapi,
// leaseapi, turnapi, deliveryapi,
// approvalapi), one for what comes from outside (watch), one
// for programs that others start (outside), one for what all of them share (core),
// and the nouns.
package registry
