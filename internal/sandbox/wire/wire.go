// Package wire defines the messages between the runner, the launcher, trampolines and init:
// the Order and descriptors to them, Status messages back.
//
// It promises that a message is complete or an error, and that a step which failed is
// named. It does not interpret orders: package isolation does.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// The drivers; the text is the level shown to people.
const (
	Full       = "full"       // user, mount, net, pid, ipc, uts, cgroup namespaces
	Bubblewrap = "bubblewrap" // the same, made by bwrap
	Privileged = "privileged" // the same without the user namespace; needs CAP_SYS_ADMIN
	Reduced    = "reduced"    // Landlock and seccomp only
	Off        = "off"        // no wall at all; still a clean environment, limits and a killed tree
)

// ID is the uid and gid a program sees itself as where there is a user namespace.
const ID = 1000

// Limits are the resource limits of one program and its children.
type Limits struct {
	MemoryBytes int64 // bytes; RLIMIT_DATA and _AS for each process, and the cgroup's for all
	PIDs        int64 // processes and threads at once
	FileBytes   int64 // bytes of one file, and of the private /tmp
	CPUSeconds  int64 // seconds of processor time of each process
	OpenFiles   int64 // descriptors of each process
	// AddressBytes is the least RLIMIT_AS, in bytes, where a cgroup bounds the memory.
	AddressBytes int64
}

// Order is all that a trampoline or init receives. It travels on a pipe or a socket:
// arguments and environments of processes can be read by others.
type Order struct {
	Driver  string
	Shell   string   // run by bash -c, or sh -c
	Argv    []string // used when Shell is empty
	Workdir string   // absolute and clean
	Temp    string   // private directory for temporary files; Reduced and Off only
	Env     []string
	Network bool
	// Listen is the address in the sandbox on which init listens; it sends the listener over the last of
	// its descriptors. Empty: on none. With Network there is none.
	Listen   string
	ReadOnly []string // more paths to show, read-only
	// Workspace is a directory to show read-only, with the ids of the workdir; empty: none. It is at
	// WorkspaceAt, where that is set and the driver has a root of its own.
	Workspace, WorkspaceAt string
	Limits                 Limits
	// UID and GID are the host's ids of the program, OwnerUID and OwnerGID those
	// of the workdir. They differ when the call comes with a user namespace that maps
	// the owner's to the program's: see the launcher.
	UID, GID, OwnerUID, OwnerGID int
	Idmap                        bool
	Cgroups                      []string // directories below which groups are made
	MemoryBound                  bool     // a cgroup bounds the memory
	PIDBudget                    int64    // value for RLIMIT_NPROC; 0: not set
	Bwrap, Self                  string   // paths; Bubblewrap only
}

// Status is one message of the way back. A program ran when Done is set; nothing
// was run when Err is.
type Status struct {
	Step   string `json:",omitempty"` // the step that failed
	Err    string `json:",omitempty"`
	Errno  int    `json:",omitempty"`
	Done   bool   `json:",omitempty"`
	Exit   int    `json:",omitempty"`
	Signal int    `json:",omitempty"`
}

// StepError is a failed step of the set-up.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// Step names the step an error is from; nil stays nil.
func Step(name string, err error) error {
	if err == nil {
		return nil
	}
	return &StepError{name, err}
}

// WriteOrder sends o, with its length in front because the pipe stays open.
func WriteOrder(w io.Writer, o Order) error {
	b, err := encode(o)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("send order: %w", err)
	}
	return nil
}

// encode puts the length of an order, of headSize bytes, before it.
func encode(o Order) ([]byte, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode order: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

const headSize = 4

// ReadOrder is the other end of WriteOrder.
func ReadOrder(r io.Reader) (Order, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Order{}, fmt.Errorf("read order: %w", err)
	}
	return body(r, head)
}

func body(r io.Reader, head [headSize]byte) (o Order, err error) {
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}

// FD reads and writes a descriptor without the poller of package os: several
// processes share these pipes, and one of them must not change the others' mode.
type FD int

func (f FD) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), b)
		switch {
		case err == nil && n == 0 && len(b) > 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			Poll(int(f), unix.POLLIN)
		case !errors.Is(err, unix.EINTR):
			return 0, err
		}
	}
}

func (f FD) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(f), b[done:])
		switch {
		case err == nil:
			done += n
		case errors.Is(err, unix.EAGAIN):
			Poll(int(f), unix.POLLOUT)
		case !errors.Is(err, unix.EINTR):
			return done, err
		}
	}
	return done, nil
}

// Say sends one status; nobody is left to tell when this fails.
func (f FD) Say(s Status) {
	b, _ := json.Marshal(s)
	_, _ = f.Write(append(b, '\n'))
}

// Fail reports the step that did not work.
func (f FD) Fail(err error) {
	s := Status{Step: "start", Err: err.Error()}
	if e, ok := errors.AsType[*StepError](err); ok {
		s.Step, s.Err = e.Step, e.Err.Error()
	}
	if n, ok := errors.AsType[unix.Errno](err); ok {
		s.Errno = int(n)
	}
	f.Say(s)
}

// Poll waits, without a bound, until one of the events is there.
func Poll(fd int, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
}

// Either waits until the last writer of the pipe is gone, the process has ended or a socket
// has something to read, at most for a time, if that is not negative, and reports whether one
// of them is so. A descriptor of -1 is not watched.
func Either(pipe, process int, within time.Duration, sockets ...int) bool {
	p := []unix.PollFd{{Fd: int32(pipe)}, {Fd: int32(process), Events: unix.POLLIN}}
	for _, s := range sockets {
		p = append(p, unix.PollFd{Fd: int32(s), Events: unix.POLLIN})
	}
	ms := -1
	if within >= 0 {
		ms = int(within / time.Millisecond)
	}
	for {
		n, err := unix.Poll(p, ms)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// initTasks are the threads of init, which count as the program's.
const initTasks = 16

// Tasks is the number to bound processes and threads by, init's included.
func (l Limits) Tasks() int64 { return l.PIDs + initTasks }
