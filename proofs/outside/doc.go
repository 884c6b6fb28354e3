// Package outside proves what a home promises to callers that use only the external
// programs: a gateway that pushes with thread, a notifier that loses tasks, a dispatcher
// that never removes its locks, a gateway that sends. The programs are the stand-ins of
// proofs/standin, the services the real ones.
package outside
