// Package cluster owns the proof of the promises among several machines: two
// registries over one PostgreSQL, four runners and two deliverers, each a process with a
// home of its own, that reach each other by TCP with mTLS alone. While messages are on
// their way processes are killed, then the database is, then it fails over to a standby
// that acknowledges with it; each message must have its one account, and each reply
// arrive.
package cluster
