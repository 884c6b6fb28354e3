package legacy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/agentdir/yamldoc"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// Undo answers what gives an agent's directory back to the earlier agent, in the order of
// doing it: names of conversations and of memory files, config.yaml, and at last the
// databases, of which the tables of this runtime are removed. Apply does it. Events,
// acknowledgements and subscriptions stay: the earlier agent continues behind what was
// answered and sent here. What cannot be given back is left to a person, and then nothing
// of that agent is changed.
func Undo(ctx context.Context, home layout.Home, id string, o Options) (Found, error) {
	s, err := newScan(home, id, o)
	if err != nil {
		return Found{}, err
	}
	s.found.Waiting.Agent = id
	list, err := s.steps()
	if err != nil {
		return Found{}, err
	}
	if !s.earlier(list) {
		s.cannot("undo", "copy its texts and start a new one there", "it was made by this version, and the earlier agent cannot open it")
		return s.found, nil
	}
	if err := s.atWork(ctx); err != nil || len(s.found.Changes) > 0 {
		return s.found, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		s.back(list[i])
	}
	if err := s.tables(ctx); err != nil {
		return Found{}, err
	}
	if list != nil {
		s.will("undo", "removes it", func(context.Context, string) error {
			return os.Remove(filepath.Join(s.dir, recordName))
		}, "%s has the record of the migration", recordName)
	}
	return s.found, ctx.Err()
}

// earlier reports whether the earlier agent knows the directory: its settings are on
// record, or are those that it wrote, which name the inbox by an absolute path.
func (s *scan) earlier(list []step) bool {
	if slices.ContainsFunc(list, func(one step) bool { return one.Kind == replaced && one.Path == "config.yaml" && one.Kept != "" }) {
		return true
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "config.yaml"))
	if err != nil {
		return false
	}
	doc, err := yamldoc.Parse(data)
	if err != nil {
		return false
	}
	inbox, _ := scalar(doc.Root(), "inbox", "path")
	return filepath.IsAbs(inbox)
}

// back undoes one step.
func (s *scan) back(one step) {
	path, to := filepath.Join(s.dir, filepath.FromSlash(one.Path)), filepath.Join(s.dir, filepath.FromSlash(one.To))
	switch {
	case one.Kind == replaced && one.Kept != "":
		was, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(one.Kept)))
		now, nowErr := os.ReadFile(path)
		if err != nil || nowErr == nil && bytes.Equal(was, now) {
			return // it was not made
		}
		s.will("settings", "writes the earlier one; this one is kept next to it", func(_ context.Context, stamp string) error {
			if nowErr == nil {
				if err := keep(s.dir, s.free(one.Path+".migrated-"+stamp), now); err != nil {
					return err
				}
			}
			root, err := os.OpenRoot(s.dir)
			if err != nil {
				return err
			}
			return errors.Join(safefile.Replace(root, one.Path, was), root.Close())
		}, "%s was written again", one.Path)
	case one.Kind == renamed && exists(to) && !exists(path):
		s.will("thread", "renames it to "+one.Path, func(ctx context.Context, _ string) error {
			if !exists(to) {
				return nil
			}
			if exists(filepath.Join(to, "events.db")) {
				err := asGuest(ctx, to, func(tx *db.Tx) error {
					_, err := tx.Exec("UPDATE subscriptions SET handler_cmd = replace(handler_cmd, ?, ?) WHERE consumer_id = 'outbound'", to, path)
					return err
				})
				if err != nil {
					return err
				}
			}
			return rename(to, path)
		}, "%s had the name %s", one.To, one.Path)
	case one.Kind == renamed && exists(to):
		s.cannot("thread", "decide which one the earlier agent shall have", "%s was renamed to %s, and both are there", one.Path, one.To)
	}
}

// atWork finds what the earlier agent would do a second time: it knows one number, up to
// which all is done.
func (s *scan) atWork(ctx context.Context) error {
	const fix = "start the services until it is done, or end it with 'agentctl run abort'; then stop them"
	inbox, err := s.numbers(ctx, s.inbox(), "x_fate", "SELECT COUNT(*) FROM x_fate WHERE inbox_id > COALESCE((SELECT id FROM x_ack WHERE consumer = 'inbox'), 0)")
	if err != nil {
		return err
	}
	if inbox > 0 {
		s.cannot("undo", fix, "%s finished before an earlier one, and would be answered again", command.Count(inbox, "message is", "messages are"))
	}
	for _, dir := range s.threadDirs() {
		begun, err := s.numbers(ctx, dir, "x_turn", "SELECT COUNT(*) FROM x_turn WHERE state <> 'done'")
		if err != nil {
			return err
		}
		if begun > 0 {
			s.cannot("undo", fix, "%s: %s", s.relative(dir), command.Count(begun, "message is being worked on", "messages are being worked on"))
		}
		sent, err := s.numbers(ctx, dir, "x_delivery", `SELECT COUNT(*) FROM x_delivery WHERE state = 'sending'
			OR state <> 'pending' AND event_id > COALESCE((SELECT id FROM x_ack WHERE consumer = 'outbound'), 0)`)
		if err != nil {
			return err
		}
		if sent > 0 {
			s.cannot("undo", fix, "%s: %s sent before an earlier one, and would be sent again", s.relative(dir), command.Count(sent, "reply is", "replies are"))
		}
	}
	return nil
}

// numbers answers a count in a database; 0 where a table is absent.
func (s *scan) numbers(ctx context.Context, dir, table, query string) (n int64, err error) {
	c, done, err := snapshot.Open(ctx, filepath.Join(dir, "events.db"), s.o.Live)
	if errors.Is(err, os.ErrNotExist) || !exists(filepath.Join(dir, "events.db")) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer done()
	if !hasTable(ctx, c, table) {
		return 0, nil
	}
	return n, c.QueryRowContext(ctx, query).Scan(&n)
}

// tables removes what this runtime added to the databases, of the inbox at last: what a
// conversation has answered is known there.
func (s *scan) tables(ctx context.Context) error {
	var dirs []string
	for _, dir := range append(s.threadDirs(), s.inbox()) {
		n, err := s.numbers(ctx, dir, "x_meta", "SELECT COUNT(*) FROM x_meta")
		if err != nil {
			return err
		}
		if n > 0 {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	s.will("undo", "removes them; their events, subscriptions and acknowledgements stay", func(ctx context.Context, _ string) error {
		for _, dir := range append(s.threadDirs(), s.inbox()) { // under the names that they have now
			if err := strip(ctx, dir); err != nil {
				return fmt.Errorf("remove tables of %s: %w", dir, err)
			}
		}
		return nil
	}, "%s the tables of this version, with its account of each message", command.Count(len(dirs), "database has", "databases have"))
	return nil
}

// strip removes our tables from a database, in one durable transaction.
func strip(ctx context.Context, dir string) error {
	return asGuest(ctx, dir, func(tx *db.Tx) error {
		var names []string
		err := tx.Each(`SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'x\_%' ESCAPE '\'`, nil, func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			names = append(names, name)
			return err
		})
		for _, name := range names {
			if err == nil {
				_, err = tx.Exec(`DROP TABLE "` + strings.ReplaceAll(name, `"`, `""`) + `"`)
			}
		}
		return err
	})
}

// asGuest runs fn in one durable transaction on the tables of the external tool, without
// adding ours.
func asGuest(ctx context.Context, dir string, fn func(*db.Tx) error) error {
	d, err := db.Open(ctx, dir, db.Options{Guest: true})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(d.Do(ctx, true, fn), d.Close())
}
