//go:build !linux

package command

import "syscall"

// Child are the attributes of a program that we start: Ctrl-C reaches us alone. It
// outlives us when we are killed, since only Linux can tell it.
func Child(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
