package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/store/sqlite/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

const databaseName = "events.db"

// floor is the greatest inbox id and the greatest fencing tokens that were used: a restored
// inbox continues above them.
type floor struct {
	id     int64             // inbox ids handed out
	tokens map[string]uint64 // of leases, by resource
}

// errStarted is returned for an agent that is to be replaced and is not stopped.
var errStarted = errors.New("the agent is started")

// inboxReserve is kept above the last id of an inbox that is replaced: a push may reach
// it while the two are exchanged, and its id is not used again either.
const inboxReserve = 1024

// with adds the tokens that a backup ends with.
func (f floor) with(tokens map[string]uint64, id string) floor {
	for _, r := range []string{lease.AgentResource(id), lease.DeliverResource(id)} {
		f.raise(r, tokens[r])
	}
	return f
}

func (f floor) raise(resource string, token uint64) {
	f.tokens[resource] = max(f.tokens[resource], token)
}

// noFloor is the floor of a name that no agent has.
func noFloor() floor { return floor{tokens: map[string]uint64{}} }

// floorOf returns the floor of the inbox at dir; scratch is a directory that does not
// exist. Errors: errStarted. An inbox that cannot be read has no floor, and no holder of a
// lease uses it.
func floorOf(ctx context.Context, dir, scratch string) (floor, error) {
	f := noFloor()
	// A copy: a registry may have the inbox open, and it opens a database once.
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return f, err
	}
	err := snapshot.Copy(ctx, dir, filepath.Join(scratch, databaseName))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	var st store.InboxState
	err = inCopy(ctx, scratch, func(tx *db.Tx) error {
		var err error
		if st, err = journal.State(tx); err != nil {
			return err
		}
		f.id, err = handedOut(tx)
		return err
	})
	if err == nil && st.Started {
		err = errStarted
	}
	f.id += inboxReserve
	maps.Copy(f.tokens, st.Fences)
	return f, err
}

// inCopy runs fn durably in a copy that no other process has open.
func inCopy(ctx context.Context, dir string, fn func(*db.Tx) error) error {
	d, err := db.Open(ctx, dir, db.Options{})
	if err != nil {
		return err
	}
	return errors.Join(d.Do(ctx, true, fn), d.Close())
}

// handedOut is the greatest id that an inbox has given to an event.
func handedOut(tx *db.Tx) (int64, error) {
	var id int64
	_, err := tx.Row(`SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'),0), COALESCE((SELECT MAX(id) FROM events),0),
		COALESCE((SELECT MAX(id) FROM x_ack WHERE consumer = 'inbox'),0), COALESCE((SELECT MAX(inbox_id) FROM x_fate),0))`, nil, &id)
	return id, err
}

func fences(tx *db.Tx, f floor) error {
	return tx.Each("SELECT resource, token FROM x_fence", nil, func(scan func(...any) error) error {
		var r string
		var t int64
		err := scan(&r, &t)
		f.raise(r, uint64(t))
		return err
	})
}

// restoredAgent counts what a restored agent has.
type restoredAgent struct {
	Threads, Events      int64 // the inbox counted in
	LastInboxID, Aborted int64
}

// restoreAgent makes the copies at dir consistent: it continues the inbox and the leases
// above the floor, records what is due, and aborts the turns whose message is not in the
// inbox of the backup. The agent id has the name as from now on. No other process has the
// directories open; see the package comment.
func restoreAgent(ctx context.Context, dir, id, as string, f floor) (restoredAgent, error) {
	out := restoredAgent{Threads: 1}
	if err := restoreConfig(dir, id, as); err != nil {
		return out, err
	}
	var head int64
	in := filepath.Join(dir, thread.Inbox)
	if err := inCopy(ctx, in, func(tx *db.Tx) error {
		var err error
		if head, err = tx.Head(); err != nil {
			return err
		}
		last, err := handedOut(tx)
		f.id = max(f.id, last)
		return errors.Join(err, fences(tx, f), verifyThread(tx, &out))
	}); err != nil {
		return out, fmt.Errorf("check inbox: %w", err)
	}
	due, sessions := map[string]int64{}, map[string]store.Session{}
	err := filepath.WalkDir(filepath.Join(dir, "threads"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != databaseName {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil || layout.ValidThread(filepath.ToSlash(rel)) != nil {
			return err
		}
		out.Threads++
		if err := inCopy(ctx, filepath.Dir(path), func(tx *db.Tx) error {
			due[filepath.ToSlash(rel)], err = restoreThread(tx, head, &f, &out)
			if err := errors.Join(err, renameFences(tx, id, as), renameKeys(tx, id, as, "x_session", "key")); err != nil {
				return err
			}
			s, err := journal.Session(tx)
			if s != nil {
				sessions[filepath.ToSlash(rel)] = *s
			}
			return err
		}); err != nil {
			return fmt.Errorf("check thread %s: %w", rel, err)
		}
		return addThreadFiles(ctx, filepath.Dir(path))
	})
	if err != nil {
		return out, err
	}
	out.LastInboxID = f.id
	err = inCopy(ctx, in, func(tx *db.Tx) error {
		return errors.Join(continueInbox(tx, f, due, id != as), renameFences(tx, id, as),
			renameKeys(tx, id, as, "x_origin", "session_key"), renameKeys(tx, id, as, "x_sessions", "key"),
			renameKeys(tx, id, as, "x_sessions", "key_folded"), renameProcesses(tx, id, as), forgetMedia(tx, dir), addMedia(tx, dir), listSessions(tx, sessions))
	})
	return out, errors.Join(err, addThreadFiles(ctx, in))
}

// verifyThread verifies every event and counts them.
func verifyThread(tx *db.Tx, out *restoredAgent) error {
	if _, err := tx.VerifyChain(); err != nil {
		return err
	}
	var n int64
	_, err := tx.Row("SELECT COUNT(*) FROM events", nil, &n)
	out.Events += n
	return err
}

// restoreThread makes one thread consistent and returns the newest event to deliver. head
// is the last message that the inbox of the backup has.
func restoreThread(tx *db.Tx, head int64, f *floor, out *restoredAgent) (int64, error) {
	var last int64
	if _, err := tx.Row("SELECT COALESCE(MAX(inbox_id),0) FROM x_turn", nil, &last); err != nil {
		return 0, err
	}
	f.id = max(f.id, last)
	n, err := tx.Exec("UPDATE x_turn SET state = 'done', fate = 'aborted', error = ?, not_before = 0, finished_at = ? WHERE inbox_id > ? AND state <> 'done'",
		"accepted while the backup was made that this agent was restored from", time.Now().UnixMilli(), head)
	if err != nil {
		return 0, err
	}
	out.Aborted += n
	// Another boot's rows are sent with the flag that the peer may have them.
	if _, err := tx.Exec("UPDATE x_delivery SET boot_id = 'restored' WHERE state = 'pending'"); err != nil {
		return 0, err
	}
	due, err := journal.OpenHead(tx)
	return due, errors.Join(err, fences(tx, *f), verifyThread(tx, out))
}

// renameFences gives an agent of another name the fences it had: what was written stays
// below them, and so do the tokens to come.
func renameFences(tx *db.Tx, id, as string) error {
	if id == as {
		return nil
	}
	for was, is := range map[string]string{lease.AgentResource(id): lease.AgentResource(as), lease.DeliverResource(id): lease.DeliverResource(as)} {
		if _, err := tx.Exec("INSERT INTO x_fence(resource, token) SELECT ?, token FROM x_fence WHERE resource = ? ON CONFLICT(resource) DO UPDATE SET token = MAX(token, excluded.token)", is, was); err != nil {
			return err
		}
	}
	return nil
}

// renameKeys gives an agent of another name the session keys of that name, in a column of a
// table that a database without sessions does not have.
func renameKeys(tx *db.Tx, id, as, table, column string) error {
	if id == as || !tx.HasSessions() {
		return nil
	}
	was, is := "agent:"+id+":", "agent:"+as+":"
	_, err := tx.Exec("UPDATE "+table+" SET "+column+" = ? || substr("+column+", length(?) + 1) WHERE substr("+column+", 1, length(?)) = ?", is, was, was, was)
	return err
}

// renameProcesses is renameKeys for processes, which few inboxes have.
func renameProcesses(tx *db.Tx, id, as string) error {
	if has, err := tx.HasProcesses(); !has || err != nil {
		return err
	}
	return renameKeys(tx, id, as, "x_process", "session_key")
}

// forgetMedia removes the rows of media without a file.
func forgetMedia(tx *db.Tx, dir string) error {
	if !tx.HasMedia() {
		return nil
	}
	var gone []string
	err := tx.Each("SELECT sha256 FROM x_media", nil, func(scan func(...any) error) error {
		var sum string
		if err := scan(&sum); err != nil {
			return err
		}
		_, err := os.Stat(filepath.Join(dir, "media", sum[:min(2, len(sum))], sum))
		if errors.Is(err, fs.ErrNotExist) {
			gone, err = append(gone, sum), nil
		}
		return err
	})
	for _, sum := range gone {
		if err == nil {
			_, err = tx.Exec("DELETE FROM x_media WHERE sha256 = ?", sum)
		}
	}
	return err
}

// addMedia adds the rows of media whose file is in the backup and whose row is not: they were written after the inbox was
// copied, and what was copied later refers to them. What nothing refers to is pruned as always.
func addMedia(tx *db.Tx, dir string) error {
	dir = filepath.Join(dir, "media")
	files, err := fs.Glob(os.DirFS(dir), "??/*")
	for _, name := range files {
		if err != nil {
			break
		}
		err = addMediaFile(tx, filepath.Join(dir, name))
	}
	return err
}

func addMediaFile(tx *db.Tx, path string) error {
	name := filepath.Base(path)
	if tx.HasMedia() {
		if there, err := tx.Row("SELECT 1 FROM x_media WHERE sha256 = ?", []any{name}, new(int64)); there || err != nil {
			return err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it is only read
	data, err := io.ReadAll(io.LimitReader(f, store.MaxMedia+1))
	if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != name {
		return err
	}
	if err := tx.MakeMedia(); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO x_media(sha256, mime, name, size, at) VALUES(?,?,'',?,?)", name, http.DetectContentType(data), len(data), time.Now().UnixMilli())
	return err
}

// listSessions makes the list of an inbox say what its conversations say, which were copied later.
func listSessions(tx *db.Tx, sessions map[string]store.Session) error {
	for _, id := range slices.Sorted(maps.Keys(sessions)) {
		if err := journal.NoteSession(tx, id, sessions[id]); err != nil {
			return err
		}
	}
	return nil
}

// continueInbox sets where the inbox continues, its fences, and what is due.
func continueInbox(tx *db.Tx, f floor, due map[string]int64, stop bool) error {
	n, err := tx.Exec("UPDATE sqlite_sequence SET seq = MAX(seq, ?) WHERE name = 'events'", f.id)
	if err == nil && n == 0 {
		_, err = tx.Exec("INSERT INTO sqlite_sequence(name, seq) VALUES('events', ?)", f.id)
	}
	for r, t := range f.tokens {
		if err == nil && t > 0 {
			_, err = tx.Exec("INSERT INTO x_fence(resource, token) VALUES(?,?) ON CONFLICT(resource) DO UPDATE SET token = MAX(token, excluded.token)", r, int64(t))
		}
	}
	for t, head := range due {
		if err == nil && head > 0 {
			_, err = tx.Exec("INSERT INTO x_outbox(thread, head, acked) VALUES(?,?,0) ON CONFLICT(thread) DO UPDATE SET head = MAX(head, excluded.head), acked = MIN(acked, excluded.head - 1)", t, head)
		}
	}
	if err == nil && stop {
		_, err = journal.SetStarted(tx, false, "")
	}
	return err
}

// addThreadFiles creates the other files of a thread directory, with the newest lines of
// events.jsonl.
func addThreadFiles(ctx context.Context, dir string) (err error) {
	for _, sub := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	var b []byte
	if err := inCopy(ctx, dir, func(tx *db.Tx) error {
		head, err := tx.Head()
		if err != nil {
			return err
		}
		const lines = 1000
		return tx.Each("SELECT "+db.Columns+" FROM events WHERE id > ? ORDER BY id", []any{head - lines}, func(scan func(...any) error) error {
			e, err := db.Scan(scan)
			b = append(e.AppendLine(b), '\n')
			return err
		})
	}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "events.jsonl"), b, 0o600)
}

var ownName = regexp.MustCompile(`(?m)^agent_id:.*$`)

// restoreConfig sets the agent's name in its settings, and the path that the inbox has in
// every backup. Invalid settings stay as they were.
func restoreConfig(dir, id, as string) error {
	name := filepath.Join(dir, "config.yaml")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was := data
	if id != as {
		data = ownName.ReplaceAllLiteral(data, []byte(`agent_id: "`+as+`"`))
	}
	in := layer.Layers{AgentID: as, Agent: layer.File{Name: "config.yaml", Data: data}}
	if set, err := layer.Load(in); err == nil && set.Config.Inbox.Path != "" {
		if moved, err := layer.Set(in, "inbox.path", thread.Inbox); err == nil {
			data = moved
		}
	}
	if bytes.Equal(was, data) {
		return nil
	}
	return os.WriteFile(name, data, 0o600)
}
