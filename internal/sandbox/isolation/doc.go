// Package isolation confines a sandboxed program: the private root, the limits, the
// dropped capabilities, Landlock and the seccomp filter. The sandbox's init applies all
// of it to itself, and the program inherits it.
//
// It promises: a step that does not take effect is an error with its name; nothing
// is best effort. Each file is one layer, and each still protects where another fails:
//
//	private root   what is not mounted has no name: files, path sockets, stat, chmod
//	Landlock       if a path becomes reachable after all; signals, abstract sockets
//	seccomp        the kernel's rarely used system calls
//	capabilities   none, and none can be gained
//	rlimits        how much of everything
//
// It starts no process and chooses nothing: package jail does.
package isolation
