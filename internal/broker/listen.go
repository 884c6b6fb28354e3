package broker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

const (
	// dirName is where sockets are, in a working directory.
	dirName = ".broker"

	maxRequest  = 4096 // bytes
	maxAsking   = 2
	maxRequests = 16
	// patience is how long a connection may take to say what it wants.
	patience = 10 * time.Second
)

// Create asks for an agent and waits until it is made; it returns its directory. Its
// error is for the program that asked.
type Create func(ctx context.Context, r Request) (dir string, err error)

// Broker is one open socket.
type Broker struct {
	path, name string
	dir        *os.File
	socket     net.Listener
	create     Create
	ctx        context.Context //nolint:containedctx // it ends with Close, which every connection must see
	stop       context.CancelFunc
	work       sync.WaitGroup
}

// open are the sockets of this process, by path: what else is found is left over.
var open = struct {
	sync.Mutex
	paths map[string]bool
}{paths: map[string]bool{}}

// Listen opens a socket in a working directory, for whoever owns that; what is asked
// on it is asked under ctx. The program may have put anything at our names there, so
// links are never followed.
func Listen(ctx context.Context, workdir string, create Create) (_ *Broker, err error) {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // documented never to fail
	b := &Broker{name: hex.EncodeToString(random), create: create}
	b.path = filepath.Join(workdir, dirName, b.name)
	owner, err := b.socketDir(workdir)
	if err != nil {
		return nil, fmt.Errorf("make room for a socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.dir.Close())
		}
	}()
	open.Lock()
	defer open.Unlock()
	if err := b.sweep(); err != nil {
		return nil, fmt.Errorf("sweep sockets: %w", err)
	}
	// By the open directory: so no path is too long, and nobody can exchange a part
	// of it. The mode of the descriptor becomes that of the name.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if outer := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); outer != nil {
			return outer
		}
		return err
	}}
	at := "/proc/self/fd/" + strconv.Itoa(int(b.dir.Fd())) + "/" + b.name
	if b.socket, err = private.Listen(ctx, "unix", at); err != nil {
		return nil, fmt.Errorf("listen in %s: %w", filepath.Dir(b.path), err)
	}
	b.socket.(*net.UnixListener).SetUnlinkOnClose(false) // by the directory, see Close
	if owner != nil {
		if err := unix.Fchownat(int(b.dir.Fd()), b.name, owner.uid, owner.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, errors.Join(fmt.Errorf("give the socket away: %w", err), b.socket.Close(), b.unlink())
		}
	}
	open.paths[b.path] = true
	b.ctx, b.stop = context.WithCancel(ctx)
	b.work.Go(b.accept)
	return b, nil
}

type ids struct{ uid, gid int }

// socketDir opens the directory of the sockets, and makes it when it is missing; the
// owner is set when that is not us.
func (b *Broker) socketDir(workdir string) (*ids, error) {
	root, err := unix.Open(workdir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(root) }()
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return nil, err
	}
	made := unix.Mkdirat(root, dirName, 0o700)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return nil, made
	}
	fd, err := unix.Openat(root, dirName, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err // a file or a link of the program: it gets no socket
	}
	b.dir = os.NewFile(uintptr(fd), dirName)
	if os.Geteuid() != 0 || st.Uid == 0 {
		return nil, nil
	}
	owner := &ids{int(st.Uid), int(st.Gid)}
	if err := unix.Fchown(fd, owner.uid, owner.gid); err != nil {
		return nil, errors.Join(err, b.dir.Close())
	}
	return owner, nil
}

// sweep removes what no command of this process listens on: one process has an
// agent at a time. The lock is held.
func (b *Broker) sweep() error {
	names, err := b.dir.Readdirnames(-1)
	for _, n := range names {
		if !open.paths[filepath.Join(filepath.Dir(b.path), n)] {
			_ = unix.Unlinkat(int(b.dir.Fd()), n, 0) // a directory of the program stays
		}
	}
	return err
}

func (b *Broker) unlink() error {
	if err := unix.Unlinkat(int(b.dir.Fd()), b.name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Path is where the program finds the socket.
func (b *Broker) Path() string { return b.path }

// Close ends what is asked, and returns when nothing of it is left.
func (b *Broker) Close() {
	b.stop()
	_ = b.socket.Close()
	b.work.Wait()
	open.Lock()
	defer open.Unlock()
	delete(open.paths, b.path)
	_ = b.unlink() // the next one sweeps
	_ = b.dir.Close()
}

// accept lets connections in, a few at a time.
func (b *Broker) accept() {
	room := make(chan struct{}, maxAsking)
	for range maxRequests {
		select {
		case room <- struct{}{}:
		case <-b.ctx.Done():
			return
		}
		c, err := b.socket.Accept()
		if err != nil {
			return
		}
		b.work.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			b.serve(c)
		})
	}
	_ = b.socket.Close() // enough for one command
}

// serve returns one connection.
func (b *Broker) serve(c net.Conn) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	in := bufio.NewReaderSize(c, maxRequest)
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return // it hung up, or said nothing
	}
	var a answer
	r, err := decode(line)
	if err == nil {
		_ = c.SetReadDeadline(time.Time{})
		b.work.Go(func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, io.LimitReader(in, maxRequest)) // until it hangs up
		})
		a.Dir, err = b.create(ctx, r)
	}
	if err != nil {
		f := fault.From(err)
		a = answer{Error: &problem{f.Code, f.Reason, f.What, f.Fix}}
	}
	out, err := json.Marshal(a)
	if err != nil { // strings always encode
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	_, _ = c.Write(append(out, '\n'))
}

// Ask asks for an agent on the socket of this program, and waits for its directory.
func Ask(ctx context.Context, path string, r Request) (string, error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	gone := func(err error) error {
		return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, "nobody answers on the socket for new agents",
			"it is there only while the command runs that it was given to; sandbox.mode: reduced has none"), err)
	}
	// By a short name: the path of a socket may be too long for its address.
	if err := os.Chdir(filepath.Dir(path)); err != nil {
		return "", gone(err)
	}
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", filepath.Base(path))
	if err != nil {
		return "", gone(err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	line, err := json.Marshal(call{Method: method, AgentID: r.AgentID, Kind: r.kind(), Provider: r.Provider, Model: r.Model})
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return "", gone(err)
	}
	said, err := io.ReadAll(io.LimitReader(c, 64<<10))
	var a answer
	switch {
	case err == nil && json.Unmarshal(said, &a) == nil && a.Error != nil:
		return "", fault.New(a.Error.Code, a.Error.Reason, a.Error.What, a.Error.Fix)
	case err == nil && a.Dir != "":
		return a.Dir, nil
	}
	return "", gone(errors.Join(err, errors.New("no answer")))
}
