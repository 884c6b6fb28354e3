// Package obs owns what an operator sees of a running program: log lines,
// metrics, and the agent.log file of each agent.
//
// It promises:
//   - No secret that was registered with a [Redactor], and nothing that looks
//     like a bearer token or an sk- key, leaves through a logger made by
//     [NewLogger] or through an [AgentLog] given that Redactor.
//   - One log record is one line, whatever text a peer sent: control
//     characters are escaped and values are capped at [MaxValue] bytes.
//   - A line handed to [AgentLog.Append] that answers nil is in agent.log or in
//     one of its rotated files, also with several writing processes.
//   - Metric label values come from small closed sets (see metrics.go); nothing
//     a peer types can create a series.
//
// It does not trace, does not ship logs anywhere, and opens no listener unless
// [ServeMetrics] is called with an address.
//
// The life of one agent.log:
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
package obs
