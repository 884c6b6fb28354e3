// Package cluster proves the promises across several machines: two registries over one
// PostgreSQL, four runners and two deliverers, each a process with a home of its own,
// connected only by TCP with mTLS. While messages are processed, processes are killed,
// then the database is killed, then it fails over to a standby that acknowledges with it;
// each message must have exactly one outcome, and each reply must arrive.
package cluster
