// Package deliverer is the service that sends what agents say: it takes the
// deliver leases of agents with undelivered replies, and drains them over the
// channels their configuration names. The loop over leases is package worker's; a
// new lease is asked for when a place to send is free.
//
// Promises:
//   - One deliverer at a time sends for an agent, and every write carries the
//     fencing token of its lease.
//   - Run ends with nothing left behind: sends finished within the grace or
//     stopped, leases given back.
//   - It keeps no state that matters between two messages.
//
// It does not open a database, does not decide how often and how long a message
// is tried (the registry's journal does), and does not read configuration files
// or the environment: what it needs of them comes in Config and Deps.
package deliverer
