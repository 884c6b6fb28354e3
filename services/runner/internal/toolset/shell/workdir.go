package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/workdir"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// patience bounds one Ready or Keep.
	patience = 2 * time.Minute
	// again is how long a call that found no registry is repeated.
	again = 30 * time.Second
	// most is how many directories are remembered at once.
	most = 4096
)

// Workdirs is the registry's WorkdirService.
type Workdirs interface {
	GetWorkdir(ctx context.Context, in *registrypb.GetWorkdirRequest, opts ...grpc.CallOption) (*registrypb.GetWorkdirResponse, error)
	ReadPieces(ctx context.Context, in *registrypb.ReadPiecesRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[registrypb.ReadPiecesResponse], error)
	WritePieces(ctx context.Context, opts ...grpc.CallOption) (grpc.ClientStreamingClient[registrypb.WritePiecesRequest, registrypb.WritePiecesResponse], error)
	CommitWorkdir(ctx context.Context, in *registrypb.CommitWorkdirRequest, opts ...grpc.CallOption) (*registrypb.CommitWorkdirResponse, error)
}

// WorkdirSync brings working directories to the machine where a command runs, and keeps what
// the command has left in them, when an agent is worked on by many machines
// (workdir.sync: snapshot).
//
//	first tool under a lease       after each command, before its result is journaled
//	  Restore: the newest snapshot   Save: scan, write the pieces that are new,
//	  is laid into the directory     commit the manifest under the lease's fence
//
// So the holder that goes on with a turn after a crash has the files of every command whose
// result is in the journal. It promises that a directory which has not changed costs one
// scan and no transfer; that a holder whose lease is over keeps nothing; and that no file
// of this machine is lost: what was never kept, because it is too large or because the
// process was killed, stays in the directory as long as no later snapshot was stored,
// and is else put aside next to it (workdir.unkept-<time>).
//
// Next to the directory, <workdir>.kept names the snapshot that it was made of. Commands of
// one agent run at the same time; they share the directory, and one of them keeps it at a
// time.
type WorkdirSync struct {
	client Workdirs
	log    *slog.Logger

	mu   sync.Mutex
	dirs map[string]*dir // by path
}

// NewWorkdirSync makes one; it makes no call.
func NewWorkdirSync(c Workdirs, log *slog.Logger) *WorkdirSync {
	return &WorkdirSync{client: c, log: log, dirs: map[string]*dir{}}
}

// dir is one working directory.
type dir struct {
	*WorkdirSync
	path string

	mu     sync.Mutex
	fence  string          // of the lease under which it was made ready
	base   string          // hash of the newest snapshot, as far as is known
	pieces map[string]bool // of that
	seen   workdir.Seen
	left   string // what was left out of the newest snapshot, as it was logged
}

func (k *WorkdirSync) dir(path string) *dir {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.dirs[path]
	if d == nil {
		if len(k.dirs) >= most {
			clear(k.dirs) // they are read anew
		}
		d = &dir{WorkdirSync: k, path: path, seen: workdir.Seen{}}
		k.dirs[path] = d
	}
	return d
}

func limits(c *registrypb.TurnConfig) workdir.Limits {
	return workdir.Limits{MaxBytes: c.GetWorkdirMaxBytes(), Ignore: ignored(c)}
}

// ignored are the patterns of what a snapshot does not have: those of the settings, and the previous
// contents of files. It has the transactions of the file tools: they say on another machine that a change is made.
func ignored(c *registrypb.TurnConfig) []string {
	return append(slices.Clone(c.GetWorkdirIgnore()), ".output/before-*")
}

// Restore writes the newest snapshot, once under a lease.
func (k *WorkdirSync) Restore(ctx context.Context, at toolset.Place) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d := k.dir(at.Config.GetWorkdir())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fence == at.Fence {
		return nil
	}
	if err := d.ready(ctx, at.Config, at.AgentID); err != nil {
		k.log.WarnContext(ctx, "working directory not downloaded", "agent_id", at.AgentID, "error", fault.Chain(err))
		return fmt.Errorf("the working directory could not be brought to this machine: %s", words(err))
	}
	d.fence = at.Fence
	return nil
}

func (d *dir) ready(ctx context.Context, c *registrypb.TurnConfig, agent string) error {
	var newest *registrypb.GetWorkdirResponse
	err := repeat(ctx, func(ctx context.Context) (err error) {
		newest, err = d.client.GetWorkdir(ctx, &registrypb.GetWorkdirRequest{AgentId: agent})
		return err
	})
	if err != nil {
		return err
	}
	want, err := workdir.Tree{}, error(nil)
	if newest.GetHash() != "" {
		if workdir.Hash(newest.GetManifest()) != newest.GetHash() {
			return errors.New("the manifest is not what its hash says")
		}
		if want, err = workdir.Decode(newest.GetManifest()); err != nil {
			return err
		}
	}
	stands, err := d.mark()
	if err != nil {
		return err
	}
	if newest.GetHash() == stands { // what is here follows what was kept last, as on one machine
		d.base, d.pieces = stands, want.Pieces()
		return nil
	}
	// No bound: what is here may have grown beyond it.
	has, _, err := workdir.Scan(ctx, d.path, workdir.Limits{Ignore: ignored(c)}, d.seen)
	if large := (*workdir.TooLarge)(nil); errors.As(err, &large) {
		has, err = workdir.Tree{}, d.aside(agent)
	} else if err == nil {
		_, hash, wrong := has.Encode()
		if hash != stands && hash != newest.GetHash() && len(has.Entries) > 0 || wrong != nil {
			has, err = workdir.Tree{}, d.aside(agent)
		}
	}
	if err != nil {
		return err
	}
	// While it is laid it is made of neither: a crash leaves it to be put aside or, when
	// nothing was changed since, laid again.
	if err := workdir.Lay(ctx, d.path, has, want, ignored(c), d.fetch(agent)); err != nil {
		return err
	}
	d.base, d.pieces = newest.GetHash(), want.Pieces()
	return d.setMark(d.base)
}

// fetch reads pieces from the registry.
func (d *dir) fetch(agent string) workdir.Fetch {
	return func(ctx context.Context, hashes []string, found func(string, []byte) error) error {
		return repeat(ctx, func(ctx context.Context) error {
			in, err := d.client.ReadPieces(ctx, &registrypb.ReadPiecesRequest{AgentId: agent, Sha256: hashes})
			if err != nil {
				return err
			}
			for {
				r, err := in.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := found(r.GetPiece().GetSha256(), r.GetPiece().GetData()); err != nil {
					return err
				}
			}
		})
	}
}

// Save stores what is in the directory now. It goes on when the turn is ended meanwhile:
// what a command has done is kept whatever becomes of its message.
func (k *WorkdirSync) Save(ctx context.Context, at toolset.Place) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	d := k.dir(at.Config.GetWorkdir())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fence != at.Fence {
		return nil // it was made ready for another holder meanwhile: this lease is over
	}
	err := d.keep(ctx, at.Config, at.AgentID)
	if err == nil {
		return nil
	}
	k.log.WarnContext(ctx, "working directory not saved", "agent_id", at.AgentID, "error", fault.Chain(err))
	if large := (*workdir.TooLarge)(nil); errors.As(err, &large) {
		return fmt.Errorf("the files of the working directory are not kept, and are on this machine alone: %s; remove some, name them in workdir.ignore, or raise workdir.max_mib", large.What)
	}
	return fmt.Errorf("the files of the working directory could not be kept, and are on this machine alone: %s", words(err))
}

// words are what a model reads of an error.
func words(err error) string {
	if _, ok := status.FromError(err); ok {
		return fault.From(err).What
	}
	return err.Error()
}

func (d *dir) keep(ctx context.Context, c *registrypb.TurnConfig, agent string) error {
	all := false
	for try := 1; ; try++ {
		tree, out, err := workdir.Scan(ctx, d.path, limits(c), d.seen)
		if err != nil {
			return err
		}
		if names := strings.Join(out[:min(len(out), 10)], " "); names != d.left {
			if d.left = names; names != "" {
				d.log.WarnContext(ctx, "files that cannot be stored exist on this machine only", "agent_id", agent, "files", names, "number", len(out))
			}
		}
		manifest, hash, err := tree.Encode()
		if err != nil || hash == d.base {
			return err
		}
		skip := d.pieces
		if all {
			skip = nil
		}
		if err := d.write(ctx, agent, tree, skip); err != nil {
			return err
		}
		fault.Point("workdir:before-commit")
		err = repeat(ctx, func(ctx context.Context) error {
			_, err := d.client.CommitWorkdir(ctx, &registrypb.CommitWorkdirRequest{AgentId: agent, Base: d.base, Manifest: manifest})
			return err
		})
		if status.Code(err) == codes.FailedPrecondition && try < 3 { // a piece is not there: it changed while it was read
			all = true
			clear(d.seen)
			continue
		}
		if err != nil {
			return err
		}
		d.base, d.pieces = hash, tree.Pieces()
		return d.setMark(hash)
	}
}

// write sends the pieces that the newest snapshot does not have.
func (d *dir) write(ctx context.Context, agent string, tree workdir.Tree, skip map[string]bool) error {
	return repeat(ctx, func(ctx context.Context) error {
		var out grpc.ClientStreamingClient[registrypb.WritePiecesRequest, registrypb.WritePiecesResponse]
		err := tree.Each(ctx, d.path, skip, func(hash string, data []byte) (err error) {
			if out == nil {
				if out, err = d.client.WritePieces(ctx); err != nil {
					return err
				}
			}
			return out.Send(&registrypb.WritePiecesRequest{AgentId: agent, Piece: &registrypb.Piece{Sha256: hash, Data: data}})
		})
		if out == nil || err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = out.CloseAndRecv() // which says why a send has ended
		return err
	})
}

// repeat makes a call again while no registry is available; all of them may be repeated.
func repeat(ctx context.Context, call func(context.Context) error) error {
	end, wait := time.Now().Add(again), 100*time.Millisecond
	for {
		once, cancel := context.WithCancel(ctx) // ends a stream that broke off
		err := call(once)
		cancel()
		if code := status.Code(err); err == nil || code != codes.Unavailable && code != codes.Unauthenticated || time.Now().After(end) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// mark returns of which snapshot the directory was made; "" of none.
func (d *dir) mark() (string, error) {
	b, err := os.ReadFile(d.path + ".kept")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

func (d *dir) setMark(hash string) error {
	tmp := d.path + ".kept.new"
	if err := os.WriteFile(tmp, []byte(hash+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, d.path+".kept")
}

// aside moves a directory away that has files of no snapshot.
func (d *dir) aside(agent string) error {
	to := d.path + ".unkept-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err := os.Rename(d.path, to); err != nil {
		return err
	}
	d.seen = workdir.Seen{}
	d.log.Warn("unsaved changes of a working directory were moved aside", "agent_id", agent, "in", filepath.Base(to))
	return nil
}
