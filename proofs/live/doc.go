// Package live proves what section 5 of docs/spec/reliability.md says about a home in use:
// a full disk, a message that kills, lost wake-ups, repeated ids, a foreign pop, and
// receivers that are broken. The services are the
// real ones, in this process or in one of their own where a process must die. What does
// not depend on the files of one home is also shown on the sites of package topology:
// TOPOLOGY=split, or cluster.
package live
