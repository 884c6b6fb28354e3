package legacy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/inboxpath"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/thread"
)

// Skipped is the cause on record of what SkipWaiting skips.
const Skipped = "skipped by 'agentctl migrate --skip-before'"

// Waiting is what is undone in an agent's directory and will be done when the agent is
// started. Of an agent that this runtime has started, it counts messages alone while no
// registry is at work, and nothing otherwise.
type Waiting struct {
	Agent         string `json:"agent"`
	Messages      int64  `json:"messages"`      // of the inbox, after the ack
	Replies       int64  `json:"replies"`       // that another agent wrote and did not send
	Conversations int64  `json:"conversations"` // that hold the replies
	Oldest        string `json:"oldest"`        // created_at of the oldest of them; empty: none
	// Starts reports that the agent is started as soon as a registry serves the home.
	Starts bool `json:"starts"`
	// SkipMessages and SkipReplies are those of them that SkipWaiting would skip.
	SkipMessages int64 `json:"skip_messages"`
	SkipReplies  int64 `json:"skip_replies"`
}

// Any reports whether something waits.
func (w Waiting) Any() bool { return w.Messages+w.Replies > 0 }

// Lines describe it for people, one thing in each.
func (w Waiting) Lines() (out []string) {
	when := "when the agent is started"
	if w.Starts {
		when = "when the agent is started, which agentd does at once"
	}
	if w.Messages > 0 {
		out = append(out, fmt.Sprintf("%s and will be answered %s", command.Count(w.Messages, "message waits", "messages wait"), when))
	}
	if w.Replies > 0 {
		out = append(out, fmt.Sprintf("%s in %s and will be sent %s; those older than deliver.max_age become dead letters",
			command.Count(w.Replies, "reply was not sent", "replies were not sent"), command.Count(w.Conversations, "conversation"), when))
	}
	return out
}

// waiting reads the inbox; threads adds the replies.
func (s *scan) waiting(ctx context.Context) {
	w := &s.found.Waiting
	w.Agent = s.id
	c, done, err := snapshot.Open(ctx, filepath.Join(s.inbox(), "events.db"), s.o.Live)
	if err != nil {
		return // a database that cannot be read is fsck's
	}
	defer done()
	var subscribed bool
	if c.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM subscriptions WHERE consumer_id = 'inbox')").Scan(&subscribed) != nil {
		return
	}
	query, desired := messagesOfOther, ""
	if hasTable(ctx, c, "x_meta") {
		query = messagesOfOurs
		if err := c.QueryRowContext(ctx, "SELECT desired FROM x_meta").Scan(&desired); err != nil {
			return
		}
	}
	s.taken = desired != ""
	w.Starts = desired == "started" || desired == "" && subscribed
	if s.o.Live && w.Starts && hasTable(ctx, c, "x_meta") {
		return // it is at work on them
	}
	s.count(ctx, c, query, &w.Messages, &w.SkipMessages)
}

const (
	counted         = "SELECT COUNT(*), COALESCE(MIN(created_at), ''), COALESCE(SUM(? OR created_at < ?), 0) FROM events e WHERE "
	messagesOfOther = counted + "type = 'message' AND id > COALESCE((SELECT last_acked_id FROM consumer_progress WHERE consumer_id = 'inbox'), 0)"
	messagesOfOurs  = counted + `type = 'message' AND id > COALESCE((SELECT id FROM x_ack WHERE consumer = 'inbox'), 0)
		AND NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id)`
	said           = "type = 'message' AND source = 'self' AND EXISTS (SELECT 1 FROM subscriptions WHERE consumer_id = 'outbound') AND id > "
	repliesOfOther = counted + said + "COALESCE((SELECT last_acked_id FROM consumer_progress WHERE consumer_id = 'outbound'), 0)"
	repliesOfOurs  = counted + said + `COALESCE((SELECT id FROM x_ack WHERE consumer = 'outbound'), 0)
		AND NOT EXISTS (SELECT 1 FROM x_delivery d WHERE d.event_id = e.id)`
)

// count adds to the counts of events and of those to skip.
func (s *scan) count(ctx context.Context, c *sql.Conn, query string, n, skip *int64) {
	var some, older int64
	var oldest string
	if c.QueryRowContext(ctx, query, s.o.skipsAll(), s.o.stamp()).Scan(&some, &oldest, &older) != nil || some == 0 {
		return
	}
	w := &s.found.Waiting
	*n += some
	if s.o.Skips {
		*skip += older
	}
	if w.Oldest == "" || oldest < w.Oldest {
		w.Oldest = oldest
	}
}

// unsent counts the replies of a conversation that another agent left.
func (s *scan) unsent(ctx context.Context, c *sql.Conn) {
	query := repliesOfOther
	if hasTable(ctx, c, "x_delivery") {
		query = repliesOfOurs
	}
	w, before := &s.found.Waiting, s.found.Waiting.Replies
	if s.o.Live && w.Starts && s.taken {
		return // they are being sent
	}
	if s.count(ctx, c, query, &w.Replies, &w.SkipReplies); w.Replies > before {
		w.Conversations++
	}
}

// skipsAll and stamp are the arguments of a count.
func (o Options) skipsAll() bool { return o.SkipBefore.IsZero() }

func (o Options) stamp() string {
	if o.SkipBefore.IsZero() {
		return ""
	}
	return thread.Stamp(o.SkipBefore)
}

// SkipWaiting skips what waits and is older than o.SkipBefore, or all when that is zero, and
// records that: messages are dead and dropped, replies skipped. The acks move
// over them. Each database is one transaction, and what was skipped is not found again,
// so that the next run continues an interrupted one. The caller holds the home's lock.
func SkipWaiting(ctx context.Context, home layout.Home, id string, o Options) (w Waiting, err error) {
	s, err := newScan(home, id, o)
	if err != nil {
		return w, err
	}
	w.Agent = id
	begun, dirs := map[string]bool{}, s.threadDirs()
	for _, dir := range dirs {
		if err := turns(ctx, dir, begun); err != nil {
			return w, fmt.Errorf("read turns of %s: %w", dir, err)
		}
	}
	err = write(ctx, s.inbox(), func(tx *db.Tx) error {
		var err error
		w.SkipMessages, err = journal.SkipMessages(tx, o.stamp(), Skipped, func(key string) bool { return begun[key] })
		return err
	})
	if err != nil {
		return w, fmt.Errorf("skip messages of %s: %w", id, err)
	}
	for _, dir := range dirs {
		one := *s
		one.found = Found{}
		if c, done, err := snapshot.Open(ctx, filepath.Join(dir, "events.db"), o.Live); err == nil {
			one.unsent(ctx, c)
			done()
		}
		if one.found.Waiting.SkipReplies == 0 {
			continue
		}
		err := write(ctx, dir, func(tx *db.Tx) error {
			n, err := journal.SkipReplies(tx, o.stamp(), Skipped)
			w.SkipReplies += n
			return err
		})
		if err != nil {
			return w, fmt.Errorf("skip replies of %s: %w", dir, err)
		}
	}
	return w, ctx.Err()
}

// turns adds the keys of the turns that this runtime has begun in a conversation.
func turns(ctx context.Context, dir string, begun map[string]bool) (err error) {
	c, done, err := snapshot.Open(ctx, filepath.Join(dir, "events.db"), false)
	if err != nil {
		return err
	}
	defer done()
	if !hasTable(ctx, c, "x_turn") {
		return nil
	}
	rows, err := c.QueryContext(ctx, "SELECT key FROM x_turn")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return err
		}
		begun[key] = true
	}
	return rows.Err()
}

// inbox is the directory of the agent's inbox; the default one where the settings cannot
// be read or name one that is refused.
func (s *scan) inbox() string {
	place := inboxpath.Place{AgentID: s.id, Dir: s.dir, Home: s.home.Path()}
	standard := filepath.Join(s.dir, thread.Inbox)
	data, err := os.ReadFile(filepath.Join(s.dir, "config.yaml"))
	if err != nil {
		return standard
	}
	doc, err := yamldoc.Parse(data)
	if err != nil {
		return standard
	}
	given, _ := scalar(doc.Root(), "inbox", "path")
	if set, _ := layer.Load(s.layers(data)); set != nil {
		place.Allowed = set.InboxPaths
	}
	dir, problem, err := inboxpath.Resolve(given, place)
	if err != nil || problem != "" || dir == "" {
		return standard
	}
	return dir
}

// threadDirs are the directories of the conversations.
func (s *scan) threadDirs() (out []string) {
	for _, pattern := range []string{"threads/*/events.db", "threads/*/*/events.db"} {
		found, _ := filepath.Glob(filepath.Join(escape(s.dir), pattern)) // the pattern is valid
		for _, path := range found {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}

// relative is a path below the agent's directory, with slashes.
func (s *scan) relative(path string) string {
	rel, err := filepath.Rel(s.dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path
	}
	return filepath.ToSlash(rel)
}

// exists reports whether something has the name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
