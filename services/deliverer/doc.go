// Package deliverer implements the service that sends the replies of agents: it takes the
// deliver leases of agents with undelivered replies, and drains them over the channels
// that their configuration names. The loop over leases is package worker's; a new lease is
// asked for when a worker is free.
//
// Promises:
//   - One deliverer at a time sends for an agent, and every write carries the
//     fencing token of its lease.
//   - When Run returns, each send has finished within the grace or was stopped, and
//     every lease was given back.
//   - It keeps no state that matters between two messages.
//
// It does not open a database, does not decide how often and how long a message is tried
// (the registry's journal does), and does not read configuration files or the environment:
// what it needs of them comes in Config and Deps.
package deliverer
