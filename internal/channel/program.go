package channel

import (
	"context"
	"time"
)

// Program is one run of an external program that sends a message.
type Program struct {
	Argv   []string // the program's path first
	Env    []string // NAME=value; it sees nothing else
	Stdin  string
	Within time.Duration // it is killed after that
	// Stdout and Stderr are given the output as it comes. They must not wait.
	Stdout, Stderr func([]byte)
}

// ProgramEnd is how a program ended that could be started.
type ProgramEnd struct {
	Exit    int    // 128 + signal when a signal ended it; 126 and 127: it is not there, or cannot be run
	Signal  string // such as SIGKILL, or empty
	Stopped bool   // killed because ctx ended or its time was over
}

// RunProgram runs a program and waits for its end, and for that of the processes it
// started. All of them die with this process, however it ends. An error says that it was
// not started.
type RunProgram func(ctx context.Context, p Program) (ProgramEnd, error)
