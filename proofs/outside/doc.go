// Package outside proves what a home promises to those who reach it with the
// external programs only: a gateway that pushes with thread, a notifier that loses
// tasks, a dispatcher that never removes its locks, a gateway that sends. The
// programs are the stand-ins of proofs/standin, the services the real ones.
package outside
