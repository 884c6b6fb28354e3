// Package runner implements the runner service: it takes leases of agents that have work,
// and works on their messages until each has its fate.
//
//	registry                         runner
//	AcquireDueLease  <-- long poll -- dispatch
//	      |                             |
//	      +------ lease, token -------> claim: renew, release, quarantine
//	OpenBatch  <----------------------  batch: lanes by conversation
//	BeginTurn, RecordStep, FinishTurn <-- turn: model, tools, reply
//
// It promises: every write goes through the registry under the lease's fence; what a lost
// lease was for stops at once, programs included; a drain takes no new work, lets turns
// finish and gives the leases back; an interrupted turn goes on with the next holder,
// wherever that is.
//
// On disk it touches only the working directory of an agent and its session files. It
// holds nothing that matters between events, opens no database, reads no configuration of
// an agent, and never calls another service than the registry. The gRPC methods are in
// runs.go, stream.go, context.go, compact.go and providers.go; the packages below
// internal/ do the work.
package runner
