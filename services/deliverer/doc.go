// Package deliverer is the service that sends what agents say: it asks the
// registry for agents with undelivered replies, takes their deliver leases, and
// drains them over the channels their configuration names.
//
//	AcquireDueLease (long poll) --- fresh ----> keeper + drain of the agent
//	        ^                  \--- held -----> wake that drain
//	        |                                        |
//	   a place is free                       nothing left for 10 s, yield,
//	        |                                stop, or lease lost
//	        +--- ReleaseLease (unless lost) <--------+
//
// Promises:
//   - One deliverer at a time sends for an agent, and every write carries the
//     fencing token of its lease.
//   - The trust in a grant is counted from before it was asked for. A long poll
//     may have waited longer than that leaves room for; then the lease is
//     renewed once before anything is done under it.
//   - Run ends with nothing left behind: sends finished within the grace or
//     stopped, leases given back.
//   - It keeps no state that matters between two messages.
//
// It does not open a database, does not decide how often and how long a message
// is tried (the registry's journal does), and does not read configuration files
// or the environment: what it needs of them comes in Config and Deps.
package deliverer
