// Package jail implements the processes between this process and a sandboxed
// program: the trampoline and the sandbox's init, both the small program
// theclaw-sandbox or, where that is missing, our own binary started again. Package sandbox
// is the other side and the only caller.
//
//	runner (large)          trampoline (small)         init (pid 1)             program
//	  | order, lifeline  ------->|                        |                        |
//	  |                          | clone(NEWUSER,...)  -->| private root           |
//	  |                          | pid into the cgroups   | ids, rlimits, caps     |
//	  |                          | order --------------->| Landlock, seccomp      |
//	  |<----------------- status: ready ------------------| fork, exec ----------->|
//	  |<----------------- status: exit 0 -----------------| reaps every orphan <---|
//	  |                          |<------ exits, and the kernel kills the rest ----|
//
// The lifeline is a pipe that only the runner can write: when the runner closes it or
// dies for any reason, the trampoline kills init and with it the pid namespace.
// PR_SET_PDEATHSIG has the same effect, should the trampoline die first.
//
// Why a trampoline: a clone with CLONE_NEWUSER copies the page tables, in time
// proportional to the resident memory of the caller.
//
// With the driver off there is no init: the trampoline starts the program itself, as a
// subreaper that kills what the program leaves.
//
// It promises: the program is started only after every step has succeeded, each
// failed step is reported by name with its errno, and no descriptor, no variable
// and no capability of ours reaches the program.
// It does not choose a driver, count output or enforce timeouts: package sandbox does.
package jail
