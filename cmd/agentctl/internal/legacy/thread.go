package legacy

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// conversation is what a thread directory says about itself.
type conversation struct {
	id, dir string
	// speakers are the tuples of its messages, each once.
	speakers []route.Tuple
	mute     bool // some message does not say who spoke
	ours     bool // this runtime has worked in it
	filter   *string
}

// adopted tells whether this runtime has had the inbox open.
func (s *scan) adopted(ctx context.Context) (bool, error) {
	c, done, err := snapshot.Open(ctx, filepath.Join(s.inbox(), "events.db"), s.o.Live)
	if err != nil {
		return false, nil //nolint:nilerr // a database that cannot be read is fsck's
	}
	defer done()
	return hasTable(ctx, c, "x_meta"), nil
}

func hasTable(ctx context.Context, c *sql.Conn, name string) bool {
	var n int
	err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?", name).Scan(&n)
	return err == nil && n > 0
}

// threads finds conversations with another name and what is wrong in them, and
// then the memory files, which are named after who speaks there.
func (s *scan) threads(ctx context.Context) error {
	var all []conversation
	for _, dir := range s.threadDirs() {
		id := s.relative(dir)
		c, err := s.read(ctx, id, dir)
		if err != nil {
			s.cannot("thread", "run 'agentctl fsck --agent "+s.id+"'", "%s cannot be read: %v", id, err)
			continue
		}
		all = append(all, c)
	}
	for i := range all {
		s.filter(all[i])
		s.name(&all[i], all)
	}
	return s.memory(all)
}

func (s *scan) read(ctx context.Context, id, dir string) (conversation, error) {
	out := conversation{id: id, dir: dir}
	c, done, err := snapshot.Open(ctx, filepath.Join(dir, "events.db"), s.o.Live)
	if err != nil {
		return out, err
	}
	defer done()
	s.unsent(ctx, c)
	if hasTable(ctx, c, "x_turn") {
		var n int
		if err := c.QueryRowContext(ctx, "SELECT COUNT(*) FROM x_turn").Scan(&n); err != nil {
			return out, err
		}
		out.ours = n > 0
	}
	err = c.QueryRowContext(ctx, "SELECT filter FROM subscriptions WHERE consumer_id = 'outbound'").Scan(&out.filter)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return out, err
	}
	rows, err := c.QueryContext(ctx, "SELECT source, content FROM events WHERE type = 'message' AND source <> 'self' ORDER BY id")
	if err != nil {
		return out, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var from, content string
		if err := rows.Scan(&from, &content); err != nil {
			return out, err
		}
		t, _, err := route.Of(from, content)
		if err != nil {
			out.mute = true
			continue
		}
		t.SessionType, t.SessionID = "", "" // one conversation may have several
		if !slices.Contains(out.speakers, t) {
			out.speakers = append(out.speakers, t)
		}
	}
	return out, rows.Err()
}

// filter finds an outbound filter that the external dispatch fails on.
func (s *scan) filter(c conversation) {
	if c.filter == nil {
		return
	}
	if _, err := filter.Parse(*c.filter); err == nil {
		return
	}
	was := *c.filter
	if was != "type=message AND source=self" {
		s.cannot("filter", "the next message puts it right; until then the external dispatch fails for this thread", "%s: the filter of outbound is not valid: %.80q", c.id, was)
		return
	}
	s.will("filter", "writes the filter that was meant", func(ctx context.Context, stamp string) error {
		old, err := json.Marshal(map[string]string{"consumer_id": "outbound", "filter": was})
		if err != nil {
			return err
		}
		if err := keep(c.dir, "subscription.json.migrated-"+stamp, old); err != nil {
			return err
		}
		return write(ctx, c.dir, func(tx *db.Tx) error {
			_, err := tx.Exec("UPDATE subscriptions SET filter = ? WHERE consumer_id = 'outbound' AND filter = ?", thread.OutboundFilter, was)
			return err
		})
	}, "%s: the filter of outbound is no SQL, and the external dispatch fails on it", c.id)
}

// write runs fn in one durable transaction.
func write(ctx context.Context, dir string, fn func(*db.Tx) error) error {
	d, err := db.Open(ctx, dir, db.Options{})
	if err != nil {
		return err
	}
	return errors.Join(d.Do(ctx, true, fn), d.Close())
}

// name finds a conversation that this runtime would look for under another name,
// and would begin anew.
func (s *scan) name(c *conversation, all []conversation) {
	mode, prefix := route.PerPeer, "threads/peers/"
	if strings.HasPrefix(c.id, "threads/channels/") {
		mode, prefix = route.PerChannel, "threads/channels/"
	}
	base, ok := strings.CutPrefix(c.id, prefix)
	if !ok || len(c.speakers) == 0 || c.ours {
		return
	}
	names := map[string]bool{}
	for _, t := range c.speakers {
		if raw(mode, t) != base {
			return // it was not named after these
		}
		names[route.Thread(mode, t)] = true
	}
	to := route.Thread(mode, c.speakers[0])
	if to == c.id && len(names) == 1 {
		return
	}
	const fix = "decide whose it is; a new conversation is begun otherwise, and this one is kept as it is"
	switch {
	case len(names) > 1:
		s.cannot("thread", fix, "%s holds what %d peers said, whose names met", c.id, len(names))
	case c.mute:
		s.cannot("thread", fix, "%s has messages that do not say who spoke", c.id)
	case slices.ContainsFunc(all, func(o conversation) bool { return o.id == to }):
		s.cannot("thread", fix, "%s would be %s, which is there too", c.id, to)
	default:
		s.move(c, to)
	}
}

// raw is the name as the earlier agent made it.
func raw(m route.Mode, t route.Tuple) string {
	if m == route.PerChannel {
		return t.ChannelID
	}
	return t.ChannelID + "-" + t.PeerID
}

// move renames a conversation. What refers to it by name is changed first: names of
// what is not there yet do no harm.
func (s *scan) move(c *conversation, to string) {
	from, dir := c.id, filepath.Join(s.dir, filepath.FromSlash(to))
	s.will("thread", "renames it, and its memory file, to "+to, func(ctx context.Context, stamp string) error {
		old := c.dir
		if err := s.record(step{Kind: renamed, Path: from, To: to}); err != nil {
			return err
		}
		err := write(ctx, old, func(tx *db.Tx) error {
			_, err := tx.Exec("UPDATE subscriptions SET handler_cmd = replace(handler_cmd, ?, ?) WHERE consumer_id = 'outbound'", old, dir)
			return err
		})
		if err != nil {
			return err
		}
		err = write(ctx, s.inbox(), func(tx *db.Tx) error {
			_, err := tx.Exec("UPDATE OR IGNORE x_outbox SET thread = ? WHERE thread = ?", to, from)
			return err
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) { // an inbox that is missing is fsck's
			return err
		}
		err = s.rename("memory/"+route.MemoryThreadFile(from), "memory/"+route.MemoryThreadFile(to))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return rename(old, dir)
	}, "%s is looked for under another name", c.id)
}

// memory finds files that are named after a peer alone.
func (s *scan) memory(all []conversation) error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "memory"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	now, byPeer := map[string]bool{}, map[string][]string{} // peer -> names under which it is looked for
	for _, c := range all {
		for _, t := range c.speakers {
			name := route.MemoryUserFile(t)
			if !now[name] {
				byPeer[t.PeerID] = append(byPeer[t.PeerID], name)
			}
			now[name] = true
		}
	}
	for _, e := range entries {
		peer, ok := strings.CutPrefix(e.Name(), "user-")
		peer, md := strings.CutSuffix(peer, ".md")
		if !ok || !md || !e.Type().IsRegular() || now[e.Name()] {
			continue
		}
		names := byPeer[peer]
		const fix = "rename it to memory/user-<channel>-<peer>.md yourself; nobody reads it until then"
		switch {
		case len(names) == 0 && strings.Contains(peer, "-"):
			// A peer that has not spoken yet under the new name.
		case len(names) == 0:
			s.cannot("memory", fix, "memory/%s belongs to a peer that has said nothing here", e.Name())
		case len(names) > 1:
			s.cannot("memory", fix, "memory/%s may belong to any of %s", e.Name(), strings.Join(names, ", "))
		case slices.ContainsFunc(entries, func(o fs.DirEntry) bool { return o.Name() == names[0] }):
			s.cannot("memory", "put what is still right into memory/"+names[0], "memory/%s is read by nobody, and memory/%s is there too", e.Name(), names[0])
		default:
			s.will("memory", "renames it to "+names[0], func(context.Context, string) error {
				return s.rename("memory/"+e.Name(), "memory/"+names[0])
			}, "memory/%s is looked for under another name", e.Name())
		}
	}
	return nil
}
