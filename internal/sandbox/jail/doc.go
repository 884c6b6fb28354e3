// Package jail implements the processes between this process and a sandboxed
// program: the launcher, trampolines and the sandbox's init, all of them the small program
// theclaw-sandbox or, where that is missing, our own binary started again. Package sandbox
// is the other side and the only caller.
//
//	runner (large)          launcher (small)           init (pid 1)             program
//	  |                          | clone(NEWUSER,...)  -->| waits for an order     |
//	  | order, descriptors ----->|                        |                        |
//	  |                          | order, descriptors --->| private root           |
//	  |                          |                        | ids, rlimits, caps     |
//	  |                          |                        | Landlock, seccomp      |
//	  |                          |                        | fork, exec ----------->|
//	  |<----------------- status: exit 0 -----------------| reaps every orphan <---|
//	  |                          |<------ exits, and the kernel kills the rest ----|
//	  |<--- end of the status ---| clone, for the next program
//
// There is one launcher for each sandbox of a runner (one for a mode), and one init for a program. An init is started when
// the last program of its kind has ended, in a control group of its own, and waits: the
// start of a process is most of what a short program would wait for. One that nothing needs
// for a minute is ended.
//
// The lifeline is a pipe that only the runner can write: when the runner closes it or
// dies for any reason, the launcher kills init and with it the pid namespace.
// PR_SET_PDEATHSIG has the same effect, should the launcher die first.
//
// Why a launcher: a clone with CLONE_NEWUSER copies the page tables, in time
// proportional to the resident memory of the caller.
//
// Without namespaces of ours (drivers bubblewrap, reduced and off) there is a trampoline
// between the launcher and the program: a subreaper that kills what the program leaves. It
// sees the death of the launcher by its socket. With off it has given up nothing that
// another program would need, and waits for the next order when the tree is dead.
//
// It promises: the program is started only after every step has succeeded, each
// failed step is reported by name with its errno, and no descriptor, no variable
// and no capability of ours reaches the program.
// It does not choose a driver, count output or enforce timeouts: package sandbox does.
package jail
