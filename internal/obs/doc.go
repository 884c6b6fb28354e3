// Package obs provides the log lines and metrics that an operator sees of a running
// program; package agentlog writes the agent.log file of each agent.
//
// It promises:
//   - No secret that was registered with a [redact.Redactor], and nothing that looks
//     like a bearer token or an sk- key, leaves through a logger made by
//     [NewLogger].
//   - One log record is one line, whatever text a peer sent: control
//     characters are escaped and values are capped at [redact.MaxValue] bytes.
//   - Metric label values come from small closed sets (see metrics.go); nothing
//     a peer types can create a series.
//
// It does not trace, does not ship logs anywhere, and opens no listener unless
// [ServeMetrics] is called with an address.
package obs
