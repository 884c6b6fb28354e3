package jail

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
}

// Order is all that the trampoline and init are told. It travels on a pipe:
// arguments and environments of processes can be read by others.
type Order struct {
	Driver   string
	Shell    string   // run by bash -c, or sh -c
	Argv     []string // used when Shell is empty
	Workdir  string   // absolute and clean
	Temp     string   // private directory for temporary files; Reduced and Off only
	Env      []string
	Network  bool
	ReadOnly []string // more paths to show, read-only
	Limits   Limits
	// UID and GID are the host's ids of the program, OwnerUID and OwnerGID those
	// of the workdir. They differ when descriptor 5 is a user namespace that maps
	// the owner's to the program's: see trampoline.
	UID, GID, OwnerUID, OwnerGID int
	Idmap                        bool
	Cgroups                      []string // cgroup.procs files
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

// stepError is a failed step of the set-up.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{name, err}
}

// WriteOrder sends o, with its length in front because the pipe stays open.
func WriteOrder(w io.Writer, o Order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode order: %w", err)
	}
	if _, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return fmt.Errorf("send order: %w", err)
	}
	return nil
}

func readOrder(r io.Reader) (Order, error) {
	var o Order
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}

// fd reads and writes a descriptor without the poller of package os: several
// processes share these pipes, and one of them must not change the others' mode.
type fd int

func (f fd) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), b)
		switch {
		case err == nil && n == 0 && len(b) > 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			poll(int(f), unix.POLLIN)
		case !errors.Is(err, unix.EINTR):
			return 0, err
		}
	}
}

func (f fd) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(f), b[done:])
		switch {
		case err == nil:
			done += n
		case errors.Is(err, unix.EAGAIN):
			poll(int(f), unix.POLLOUT)
		case !errors.Is(err, unix.EINTR):
			return done, err
		}
	}
	return done, nil
}

// say sends one status; nobody is left to tell when this fails.
func (f fd) say(s Status) {
	b, _ := json.Marshal(s)
	_, _ = f.Write(append(b, '\n'))
}

// fail reports the step that did not work.
func (f fd) fail(err error) {
	s := Status{Step: "start", Err: err.Error()}
	if e, ok := errors.AsType[*stepError](err); ok {
		s.Step, s.Err = e.step, e.err.Error()
	}
	if n, ok := errors.AsType[unix.Errno](err); ok {
		s.Errno = int(n)
	}
	f.say(s)
}

func poll(fd int, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
}

// awaitHangup returns when the last writer of the pipe is gone.
func awaitHangup(fd int) {
	p := []unix.PollFd{{Fd: int32(fd)}}
	for {
		if _, err := unix.Poll(p, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if p[0].Revents != 0 {
			return
		}
	}
}
