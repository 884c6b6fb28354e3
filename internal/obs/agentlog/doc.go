// Package agentlog writes and reads the file logs/agent.log of each agent, in which an
// owner reads what the agent did.
//
// It promises:
//   - A line for which [Log.Append] returned nil is in agent.log or in one of its
//     rotated files, also with several writers in several processes.
//   - agent.log never holds more than 10,000 lines; the next one starts a new file
//     and the full one becomes agent-<YYYYMMDD-HHmmss>.log (UTC), with -2, -3 ...
//     before the suffix when that name is taken. Nothing is overwritten or deleted.
//   - Files have mode 0600, at most 64 of them are open, and a line costs no
//     reading: lines are counted once at opening, and then only what others added.
//
// Lines may be lost in a power failure: the file is not synced, because the journal is
// the record. The package does not decide what is worth a line.
//
// The states of one agent.log:
//
//	          line, < limit            line, limit reached
//	          +---------+        +--------------------------------+
//	          v         |        |                                v
//	(absent) --> agent.log (0600) ----rename----> agent-<time>.log (kept)
//	                 ^                                 |
//	                 +------ new, empty ---------------+
//
// All steps run under an advisory lock (flock) on the file itself; a writer that
// got the lock on a file that was renamed meanwhile opens the new one.
package agentlog
