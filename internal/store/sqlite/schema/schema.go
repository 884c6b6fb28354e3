// Package schema defines the tables of events.db and creates thread directories. It has the
// three tables of the external thread tool, to the letter, and the x_ tables, which are
// ours and which the tool does not see.
package schema

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the engine
)

// Format is the version of our tables in a new database, FormatErased of one in which
// something was erased, FormatSessions of one that has an origin or a session, FormatTools of
// one that has a row about a tool, such as one of Process, FormatExternal of one with a step whose result is
// external: an older build would go on from such a result without the rules for it, and FormatMedia of an inbox with a
// row of Media: an older build would leave their data out of a backup. It never becomes lower. Newest is the last that
// this build knows; a database of a newer one is refused.
const (
	Format         = 1
	FormatErased   = 2
	FormatSessions = 3
	FormatTools    = 4
	FormatExternal = 5
	FormatMedia    = 6
	Newest         = FormatMedia
)

// Erased is the table of what was erased; the first erasing makes it.
const Erased = `CREATE TABLE IF NOT EXISTS x_erased (event_id INTEGER PRIMARY KEY, key TEXT NOT NULL, proof BLOB NOT NULL)`

// Origins are the tables of an inbox that hold the origins of its events and the list of the
// agent's sessions. Session is the table of a conversation that holds its session. The first
// row of any of them makes them: a database without such rows stays readable for older builds.
var (
	Origins = []string{
		`CREATE TABLE IF NOT EXISTS x_origin (
  inbox_id INTEGER PRIMARY KEY, thread TEXT NOT NULL, session_key TEXT NOT NULL, account TEXT NOT NULL DEFAULT '',
  provider_id TEXT NOT NULL DEFAULT '', rev INTEGER NOT NULL DEFAULT 0, command TEXT NOT NULL DEFAULT '',
  sent_at INTEGER NOT NULL DEFAULT 0, cause TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '')`,
		`CREATE TABLE IF NOT EXISTS x_sessions (
  thread TEXT PRIMARY KEY, key TEXT NOT NULL, key_folded TEXT NOT NULL, epoch TEXT NOT NULL DEFAULT '',
  last_at INTEGER NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0, title TEXT NOT NULL DEFAULT '',
  archived INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID`,
		`CREATE INDEX IF NOT EXISTS x_sessions_folded ON x_sessions(key_folded)`,
	}
	Session = []string{
		`CREATE TABLE IF NOT EXISTS x_session (
  one INTEGER PRIMARY KEY CHECK (one = 1), key TEXT NOT NULL, epoch TEXT NOT NULL DEFAULT '',
  epoch_from INTEGER NOT NULL DEFAULT 0, started_at INTEGER NOT NULL DEFAULT 0, pending TEXT NOT NULL DEFAULT '',
  pending_by TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '', thinking TEXT NOT NULL DEFAULT '',
  verbose TEXT NOT NULL DEFAULT '', reasoning TEXT NOT NULL DEFAULT '', queue_mode TEXT NOT NULL DEFAULT '',
  usage_footer TEXT NOT NULL DEFAULT '', elevated TEXT NOT NULL DEFAULT '', title TEXT NOT NULL DEFAULT '',
  archived INTEGER NOT NULL DEFAULT 0)`,
	}
)

// Process are the tables of an inbox for processes in the background; the first row makes them.
var Process = []string{
	`CREATE TABLE IF NOT EXISTS x_process (
  id TEXT PRIMARY KEY, thread TEXT NOT NULL, step_key TEXT NOT NULL, token INTEGER NOT NULL, state TEXT NOT NULL,
  exit INTEGER NOT NULL DEFAULT 0, tail TEXT NOT NULL DEFAULT '', seen INTEGER NOT NULL DEFAULT 0,
  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL DEFAULT 0,
  session_key TEXT NOT NULL DEFAULT '', event TEXT NOT NULL DEFAULT '') WITHOUT ROWID`,
	`CREATE INDEX IF NOT EXISTS x_process_open ON x_process(token) WHERE state IN ('starting','running')`,
}

// Media is the table of an inbox that describes the media of its agent; the first row makes it. Their data are files.
const Media = `CREATE TABLE IF NOT EXISTS x_media (
  sha256 TEXT PRIMARY KEY, mime TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID`

// RaiseFormat sets the format of a database to the argument, unless it is greater already.
const RaiseFormat = "UPDATE x_meta SET format = MAX(format, ?)"

// IntoFate records the fate of an inbox event, after INSERT or INSERT OR IGNORE: its id, its
// key, the thread, the fate, and the time in milliseconds.
const IntoFate = "INTO x_fate(inbox_id, key, thread, fate, at) VALUES(?,?,?,?,?)"

// Later are columns that databases of the same format may lack; older builds do
// not look at them. Each is table, column and definition.
var Later = [][3]string{
	{"x_step", "cache_write", "INTEGER NOT NULL DEFAULT 0"},
	{"x_delivery", "parts", "INTEGER NOT NULL DEFAULT 0"},
	{"x_delivery", "reach", "INTEGER NOT NULL DEFAULT 0"},
	{"x_turn", "attempts", "TEXT NOT NULL DEFAULT ''"},
	{"x_step", "asks", "INTEGER NOT NULL DEFAULT 0"}, // a person is asked before the tool begins
	{"x_step", "summary", "TEXT NOT NULL DEFAULT ''"},
	{"x_step", "is_error", "INTEGER NOT NULL DEFAULT 0"},
	{"x_step", "external", "INTEGER NOT NULL DEFAULT 0"},
}

// Lacking answers what adds the columns of Later that tables lack, given their texts;
// a table that is not among them is left alone.
func Lacking(texts string) (add []string) {
	for _, text := range strings.Split(texts, ";") {
		words := strings.FieldsFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		for _, c := range Later {
			if slices.Contains(words, c[0]) && !slices.Contains(words, c[1]) {
				add = append(add, "ALTER TABLE "+c[0]+" ADD COLUMN "+c[1]+" "+c[2])
			}
		}
	}
	return add
}

// SQL makes all tables and indexes that are absent.
const SQL = thread + ours

const thread = `
CREATE TABLE IF NOT EXISTS events (
      id         INTEGER PRIMARY KEY AUTOINCREMENT,
      created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
      source     TEXT    NOT NULL,
      type       TEXT    NOT NULL,
      subtype    TEXT,
      content    TEXT    NOT NULL
    );
CREATE TABLE IF NOT EXISTS subscriptions (
      consumer_id  TEXT NOT NULL,
      handler_cmd  TEXT NOT NULL,
      filter       TEXT,
      PRIMARY KEY (consumer_id)
    );
CREATE TABLE IF NOT EXISTS consumer_progress (
      consumer_id   TEXT    NOT NULL PRIMARY KEY,
      last_acked_id INTEGER NOT NULL DEFAULT 0,
      updated_at    TEXT    NOT NULL
    );
CREATE INDEX IF NOT EXISTS idx_events_source ON events(source);
CREATE INDEX IF NOT EXISTS idx_events_type   ON events(type);
`

const ours = `
CREATE TABLE IF NOT EXISTS x_meta (
  one INTEGER PRIMARY KEY CHECK (one = 1), uuid TEXT NOT NULL, format INTEGER NOT NULL,
  tuple TEXT NOT NULL DEFAULT '', desired TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS x_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_dedupe (key TEXT PRIMARY KEY, event_id INTEGER NOT NULL, token INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_chain (event_id INTEGER PRIMARY KEY, prev BLOB NOT NULL, sha256 BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS x_ack (consumer TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_route (from_id INTEGER PRIMARY KEY, mode TEXT NOT NULL, encoding INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS x_fate (
  inbox_id INTEGER PRIMARY KEY, key TEXT NOT NULL, thread TEXT NOT NULL, fate TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS x_dead (
  inbox_id INTEGER PRIMARY KEY, error TEXT NOT NULL, resolved TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS x_outbox (
  thread TEXT PRIMARY KEY, head INTEGER NOT NULL DEFAULT 0, acked INTEGER NOT NULL DEFAULT 0,
  dead INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_turn (
  key TEXT PRIMARY KEY, inbox_id INTEGER NOT NULL, state TEXT NOT NULL, fate TEXT NOT NULL DEFAULT '',
  crash_attempts INTEGER NOT NULL DEFAULT 0, error_attempts INTEGER NOT NULL DEFAULT 0,
  not_before INTEGER NOT NULL DEFAULT 0, waiting_since INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '', leader TEXT NOT NULL DEFAULT '', reply_context TEXT NOT NULL DEFAULT '',
  inbound_id INTEGER NOT NULL DEFAULT 0, reply_id INTEGER NOT NULL DEFAULT 0, error_id INTEGER NOT NULL DEFAULT 0,
  claimed_at INTEGER NOT NULL DEFAULT 0, finished_at INTEGER NOT NULL DEFAULT 0,
  attempts TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_step (
  turn TEXT NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL,
  class TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT '', call_id TEXT NOT NULL DEFAULT '',
  arguments TEXT NOT NULL DEFAULT '', request_sha256 BLOB, result BLOB,
  input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0, cached_input INTEGER NOT NULL DEFAULT 0,
  reasoning INTEGER NOT NULL DEFAULT 0, duration_us INTEGER NOT NULL DEFAULT 0, recorded_at INTEGER NOT NULL,
  cache_write INTEGER NOT NULL DEFAULT 0, asks INTEGER NOT NULL DEFAULT 0,
  summary TEXT NOT NULL DEFAULT '', is_error INTEGER NOT NULL DEFAULT 0, external INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (turn, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS x_delivery (
  event_id INTEGER PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  not_before INTEGER NOT NULL DEFAULT 0, channel TEXT NOT NULL DEFAULT '', provider_id TEXT NOT NULL DEFAULT '',
  boot_id TEXT NOT NULL DEFAULT '', crashes INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', maybe_duplicate INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, resolved TEXT NOT NULL DEFAULT '',
  parts INTEGER NOT NULL DEFAULT 0, reach INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS x_memory (
  layer TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0, digested INTEGER NOT NULL DEFAULT 0,
  seen INTEGER NOT NULL DEFAULT 0, base TEXT NOT NULL DEFAULT '', text TEXT NOT NULL DEFAULT '',
  thread TEXT NOT NULL DEFAULT '', event TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS x_delivery_open ON x_delivery(event_id) WHERE state IN ('pending','sending');
CREATE INDEX IF NOT EXISTS x_delivery_dead ON x_delivery(event_id) WHERE state = 'dead' AND resolved = '';
`

// image is the bytes of an empty database with the whole schema: making a
// thread is then one write, one fsync and one link instead of a dozen of each.
var image = sync.OnceValues(func() ([]byte, error) { return build(SQL) })

// nobody stands in the image of a database that is ours for the identifier it gets.
const nobody = "00000000-0000-4000-8000-000000000000"

// PageSize is the page size of a new database, in bytes. A commit writes each page that it changes
// into the log, and the rows of a message are small: with 1 KiB a message costs a third of
// what it costs with the engine's default of 4 KiB (docs/decisions/021).
const PageSize = 1024

var prepared = sync.OnceValues(func() ([]byte, error) {
	return build(SQL + fmt.Sprintf("INSERT INTO x_meta(one, uuid, format) VALUES(1, '%s', %d)", nobody, Format))
})

// ownImage is an image with an identifier of its own: its first opening has nothing
// to write.
func ownImage() ([]byte, error) {
	img, err := prepared()
	if err != nil {
		return nil, err
	}
	return bytes.Replace(img, []byte(nobody), []byte(NewUUID()), 1), nil
}

func build(script string) ([]byte, error) {
	s, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	s.SetMaxOpenConns(1)
	var img []byte
	c, err := s.Conn(context.Background())
	if err == nil {
		if _, err = c.ExecContext(context.Background(), fmt.Sprintf("PRAGMA page_size=%d;", PageSize)+script); err == nil {
			err = c.Raw(func(driver any) error {
				var err error
				img, err = driver.(interface{ Serialize() ([]byte, error) }).Serialize()
				return err
			})
		}
		err = errors.Join(err, c.Close())
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	// Format versions of the file header: 2 is WAL, so that two programs opening
	// the new file never race for the conversion.
	img[18], img[19] = 2, 2
	return img, nil
}

// Create makes a thread directory at dir: events.db, events.jsonl, run/, logs/.
// It answers false when a database was there. Of two racing calls exactly one
// creates; neither ever sees half a database, because the file is complete and
// on disk before it has its name. Whose it is, its first opening says.
func Create(dir string) (bool, error) { return create(dir, image, (*os.File).Sync, SyncDir) }

// Make is Create for a database that is ours from the beginning.
func Make(dir string) (bool, error) { return create(dir, ownImage, (*os.File).Sync, SyncDir) }

// Prepare is Make in a directory that nobody sees yet and that the caller brings to
// disk as a whole.
func Prepare(dir string) (bool, error) {
	return create(dir, ownImage, func(*os.File) error { return nil }, func(string) error { return nil })
}

func create(dir string, image func() ([]byte, error), sync func(*os.File) error, syncDir func(string) error) (bool, error) {
	path := filepath.Join(dir, "events.db")
	if _, err := os.Stat(path); err == nil {
		return false, nil
	}
	img, err := image()
	if err != nil {
		return false, fmt.Errorf("build schema: %w", err)
	}
	for _, d := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return false, fmt.Errorf("make thread: %w", err)
		}
	}
	tmp, err := os.CreateTemp(dir, ".events.db.")
	if err != nil {
		return false, fmt.Errorf("make thread: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(img)
	if err == nil {
		err = sync(tmp)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return false, fmt.Errorf("write database: %w", err)
	}
	if err := os.Link(tmp.Name(), path); errors.Is(err, os.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("name database: %w", err)
	}
	j, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("make mirror: %w", err)
	}
	return true, errors.Join(j.Close(), syncDir(dir))
}

// SyncDir puts the entries of a directory on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// NewUUID is a random identifier for a database.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
