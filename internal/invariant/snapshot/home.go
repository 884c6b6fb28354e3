package snapshot

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/inboxpath"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/filetree"
	"github.com/theclaw/agents/internal/lease"
)

// Options of reading.
type Options struct {
	Agent  string   // only this one; empty: all
	Live   bool     // services may be at work in the home
	Search []string // texts to look for in events and in the journal
	// UserHome is what ~/ stands for in inbox.path.
	UserHome string
}

// Read reads a home. The error is about the home; what is wrong with a database
// is part of the answer.
func Read(ctx context.Context, home layout.Home, o Options) (*Home, error) {
	out := &Home{Path: home.Path()}
	out.readLeases(ctx, home, o.Live)
	before := out.Leases
	entries, err := os.ReadDir(home.AgentsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && layout.ValidID(e.Name()) == nil && (o.Agent == "" || o.Agent == e.Name()) {
			out.Agents = append(out.Agents, &Agent{ID: e.Name(), Dir: home.AgentDir(e.Name())})
		}
	}
	// Databases are many and small: parsing and hashing is what takes the time.
	// Agents and their threads share the processors.
	busy := make(chan struct{}, runtime.GOMAXPROCS(0))
	var agents errgroup.Group
	agents.SetLimit(cap(busy))
	for _, a := range out.Agents {
		agents.Go(func() error { return a.read(ctx, home, o, busy) })
	}
	if err := agents.Wait(); err != nil {
		return nil, err
	}
	if o.Agent != "" && len(out.Agents) == 0 {
		return nil, fs.ErrNotExist
	}
	out.Leases, out.LeasesProblem = nil, ""
	out.readLeases(ctx, home, o.Live)
	out.wereHeld(before)
	out.readPrompts(ctx, home, o.Live)
	return out, nil
}

// readPrompts reads what people were asked. A ledger that cannot be read is a problem of the leases; one of an
// earlier build has no such tables.
func (h *Home) readPrompts(ctx context.Context, home layout.Home, live bool) {
	if _, err := os.Stat(home.RegistryDB()); err != nil || h.LeasesProblem != "" {
		return
	}
	c, done, err := Open(ctx, home.RegistryDB(), live)
	if err != nil {
		h.LeasesProblem = err.Error()
		return
	}
	defer done()
	agents := map[string]*Agent{}
	for _, a := range h.Agents {
		agents[a.ID] = a
	}
	for _, kind := range []string{"approval", "question"} {
		there := false
		err := each(ctx, c, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '"+kind+"'", func(*sql.Rows) error {
			there = true
			return nil
		})
		if err == nil && there {
			err = each(ctx, c, "SELECT agent, id, key, state FROM "+kind+" ORDER BY id", func(r *sql.Rows) error {
				var agent string
				p := Prompt{Kind: kind}
				err := r.Scan(&agent, &p.ID, &p.Key, &p.State)
				if a := agents[agent]; a != nil {
					a.Prompts = append(a.Prompts, p)
				}
				return err
			})
		}
		if err != nil {
			h.LeasesProblem = err.Error()
			return
		}
	}
}

// read reads an agent; busy has room for those that may read at once.
func (a *Agent) read(ctx context.Context, home layout.Home, o Options, busy chan struct{}) error {
	one := func(threadID, dir string) *DB {
		busy <- struct{}{}
		defer func() { <-busy }()
		return ReadDB(ctx, a.ID, threadID, dir, o)
	}
	a.Inbox = one("inbox", InboxDir(home, a.ID, o.UserHome))
	for i := range a.Inbox.Media {
		a.Inbox.Media[i].Damaged = !intact(a.Dir, a.Inbox.Media[i].SHA256, o.Live)
	}
	ids, err := threads(ctx, a.Dir)
	if err != nil {
		return err
	}
	a.Threads = make([]*DB, len(ids))
	var all errgroup.Group
	all.SetLimit(cap(busy))
	for i, t := range ids {
		all.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			a.Threads[i] = one(t, filepath.Join(a.Dir, filepath.FromSlash(t)))
			return nil
		})
	}
	return all.Wait()
}

// intact reports whether the file of media is there and has its hash. In a home at work, one that is not there may have
// been removed since its row was read.
func intact(agentDir, sum string, live bool) bool {
	f, err := os.Open(filepath.Join(agentDir, "media", sum[:min(2, len(sum))], filepath.Base(sum)))
	if err != nil {
		return live && errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }() // it is only read
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == sum
}

// InboxDir is where an agent's inbox lies: where its settings say, else in the
// agent's directory. Settings that cannot be read are somebody else's finding.
func InboxDir(home layout.Home, id, userHome string) string {
	dir := home.AgentDir(id)
	std := filepath.Join(dir, "inbox")
	data, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return std
	}
	in := layer.Layers{AgentID: id, Agent: layer.File{Name: "config.yaml", Data: data}}
	if file, err := agentdir.ReadSettings(home); err == nil {
		in.Home = file
	}
	set, err := layer.Load(in)
	if err != nil {
		return std
	}
	got, problem, err := inboxpath.Resolve(set.Config.Inbox.Path, inboxpath.Place{
		AgentID: id, Dir: dir, Home: home.Path(), UserHome: userHome, Allowed: set.InboxPaths,
	})
	if err != nil || problem != "" || got == "" {
		return std
	}
	return got
}

// threads answers the ids of the conversation threads below an agent: those
// with a database, and those whose database was put aside. A directory that cannot be
// read holds none; the check of files reports it.
func threads(ctx context.Context, dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // it has none that can be read
	}
	defer func() { _ = root.Close() }() // it was only read
	var out []string
	err = filetree.Walk(ctx, root, "threads", func(e filetree.Entry) error {
		switch {
		case !e.Info.IsDir():
			return nil
		case here(filepath.Join(dir, e.Path)):
			out = append(out, e.Path)
			return fs.SkipDir
		case strings.Count(e.Path, "/") >= layout.MaxThreadLevels-1:
			return fs.SkipDir
		}
		return nil
	}, func(string, error) {})
	slices.Sort(out)
	return out, err
}

func (h *Home) readLeases(ctx context.Context, home layout.Home, live bool) {
	if _, err := os.Stat(home.RegistryDB()); errors.Is(err, fs.ErrNotExist) {
		return
	}
	c, done, err := Open(ctx, home.RegistryDB(), live)
	if err != nil {
		h.LeasesProblem = err.Error()
		return
	}
	defer done()
	err = each(ctx, c, "SELECT resource, token, holder, ttl_ms, expires, released FROM lease", func(r *sql.Rows) error {
		var l Lease
		var token, ttl, expires int64
		if err := r.Scan(&l.Resource, &token, &l.Holder, &ttl, &expires, &l.Released); err != nil {
			return err
		}
		l.Token, l.TTL, l.Expires = uint64(token), time.Duration(ttl)*time.Millisecond, time.UnixMilli(expires)
		h.Leases = append(h.Leases, l)
		return nil
	})
	if err != nil {
		h.LeasesProblem = err.Error()
	}
	alive := map[string]bool{}
	for i, l := range h.Leases {
		if _, ok := alive[l.Holder]; !ok {
			alive[l.Holder] = !lease.HolderDead(home.HoldersDir(), l.Holder)
		}
		h.Leases[i].Alive = alive[l.Holder]
	}
}

// wereHeld adds what was held before the databases were read. That takes a while:
// work seen under way in one of them may have ended since, and its lease with it,
// or may have been taken up only then.
func (h *Home) wereHeld(before []Lease) {
	held := map[string]bool{}
	for _, l := range before {
		held[l.Resource] = l.Alive && !l.Released
	}
	for i, l := range h.Leases {
		if held[l.Resource] {
			h.Leases[i].Alive, h.Leases[i].Released = true, false
		}
	}
}

// here reports whether a directory is a thread: it has a database, or had one that
// was put aside.
func here(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "events.db")); err == nil {
		return true
	}
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "events.db.corrupt-") })
}
