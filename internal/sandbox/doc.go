// Package sandbox runs programs we do not trust: bash_exec and every tool that starts
// a process.
//
//	      Run(ctx, Command)                     what the program sees
//	            |                          +--------------------------------+
//	 probed driver, best first             | /usr /bin /lib ..   read-only  |
//	+--------------------------+           | its workdir    read and write  |
//	| full        user ns      |           | /tmp  private, small           |
//	| bubblewrap  bwrap        |---------->| /dev  null zero random ..      |
//	| privileged  no user ns   |           | /proc only itself, read-only   |
//	| reduced     no namespace |           | loopback only, no socket of    |
//	+--------------------------+           | the host, 8 variables, no      |
//	 none of them: SANDBOX_UNAVAILABLE     | capability, seccomp, Landlock  |
//	                                       +--------------------------------+
//
// It promises: a program runs on the host itself only when the mode is off; a
// timeout, a cancelled context and the death of this process end the complete tree of
// processes, also those that left their session; the result is at most OutputCap bytes
// large. The driver is chosen once, by starting each of them, and Report says what was
// missing for the better ones.
//
// Its packages: jail (the processes between this one and the program), wire (what they
// are sent), isolation (what confines a program), cgroup, output. A private scratch
// directory holds what is temporary.
//
// It does not decide who may run what (approvals do), does not keep results and
// does not know the tools. The kernel is shared: a vulnerability of it is one of this
// sandbox. With Network the program has the host's network, its loopback included.
// The disk space of the workdir is not bounded, only the size of each file.
// The drivers are for Linux, amd64 and arm64, kernel 5.13 or later for the built-in
// ones. Elsewhere there is none: every program is refused, unless the mode is off.
//
// Level reduced is weaker, and Report says so: stat, chmod and utimes reach files
// outside, command lines of other processes can be read, and a program that leaves
// its session outlives us if the launcher and the trampoline are killed together.
package sandbox
