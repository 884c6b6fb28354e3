package command

import "syscall"

// Child are the attributes of a program that we start: Ctrl-C reaches us alone, and
// should we die, the kernel sends it a signal.
func Child(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}
