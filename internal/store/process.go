package store

import (
	"context"
	"errors"
	"time"
)

// Errors about processes.
var (
	ErrNoProcess = errors.New("there is no such process")
	// ErrProcessTaken reports that another call has a process of the same id.
	ErrProcessTaken = errors.New("the id is of another process")
)

// ProcessState is how far a process in the background got; the text is stored.
type ProcessState string

// States of a process.
//
//	starting --> running --> exited, killed
//	    \___________\------> lost: its runner has ended
const (
	ProcessStarting ProcessState = "starting"
	ProcessRunning  ProcessState = "running"
	ProcessExited   ProcessState = "exited"
	ProcessKilled   ProcessState = "killed"
	ProcessLost     ProcessState = "lost"
)

// Ended reports whether the process is over.
func (s ProcessState) Ended() bool { return s != ProcessStarting && s != ProcessRunning }

const (
	// MaxTail bounds Process.Tail, in bytes.
	MaxTail = 2 << 10
	// MaxProcesses is how many processes one call answers or gives up.
	MaxProcesses = 100
	// ProcessKeep is how long the row of a process stays after its end. The first record of a
	// later process removes it.
	ProcessKeep = 7 * 24 * time.Hour
)

// Process is a program that a tool call has left in the background.
type Process struct {
	ID      string // in its agent
	Thread  string // of the conversation
	StepKey string // key of the turn and of the call that started it
	Token   uint64 // of the lease under which it runs
	State   ProcessState
	Exit    int64  // exit code, when exited
	Tail    string // what it printed last, or why it did not run
	// Seen: the model has read its end, or is not to be notified of it: no event is due.
	Seen      bool
	StartedAt time.Time // when it was recorded first
	EndedAt   time.Time // zero while it is not over

	// SessionKey of the conversation, and Event: what the event at its end has besides its
	// text, a JSON object. Only the first record sets them.
	SessionKey, Event string
}

// RecordedProcess is what a record did.
type RecordedProcess struct {
	Process       // as it is stored
	Pushed  bool  // an event
	Acked   int64 // of the inbox: it does not reach the head while a process runs
	Running bool  // this one or another one is not over
}

// Processes keeps what runs in the background, in the inbox of the agent.
//
// A process that is over has exactly one event in the inbox, or was seen: the record of its end
// and the event are one transaction, and only the first record of an end does anything. What
// a runner did not record is given up by the first [Inboxes].OpenBatch under a newer token of
// the lease, in its transaction: a process ends with its runner.
type Processes interface {
	// RecordProcess stores a process, or how far it got. What is over stays as it is.
	// Errors: ErrNoProcess for the end of one that was never recorded, ErrProcessTaken when
	// another call has the id, and those of a lost lease.
	RecordProcess(ctx context.Context, agent string, f Fence, p Process) (RecordedProcess, error)
	// Processes answers those of a conversation, or of all when threadID is empty, newest first, at
	// most MaxProcesses; of one id, when it is not empty.
	Processes(ctx context.Context, agent, threadID, id string) ([]Process, error)
}
