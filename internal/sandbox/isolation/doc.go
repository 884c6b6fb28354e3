// Package isolation owns what keeps a sandboxed program in: the private root, the limits,
// the capabilities it loses, Landlock and the seccomp filter. All of it is done by
// the sandbox's init to itself, and inherited.
//
// It promises: a step that does not take effect is an error with its name; nothing
// is best effort. Each file is one wall, and each holds where another has a hole:
//
//	private root   what is not mounted has no name: files, path sockets, stat, chmod
//	Landlock       should a path come in all the same; signals, abstract sockets
//	seccomp        the kernel's rarely used doors
//	capabilities   none, and none to be had
//	rlimits        how much of everything
//
// It starts no process and chooses nothing: package jail does.
package isolation
