package homedb_test

import (
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *homedb.DB {
	t.Helper()
	d, err := homedb.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// I6: what was saved is there after a restart, and a token never falls.
func TestLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	d := open(t, path)
	r := lease.Record{Resource: "agent/a", Token: 2, Holder: "h", Address: "unix:x", RequestID: "q", TTL: 15 * time.Second, Expires: time.UnixMilli(1700000000123)}
	released := lease.Record{Resource: "deliver/a", Token: 1, Holder: "h", TTL: time.Second, Expires: time.UnixMilli(1), Released: true}
	if err := errors.Join(d.Save(t.Context(), r), d.Save(t.Context(), released)); err != nil {
		t.Fatal(err)
	}
	renewed := r
	renewed.Expires = r.Expires.Add(time.Second)
	if err := d.Save(t.Context(), renewed); err != nil {
		t.Fatal(err)
	}
	older := r
	older.Token = 1
	if err := d.Save(t.Context(), older); err == nil {
		t.Error("a lower token was saved without an error")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	rows, err := open(t, path).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]lease.Record{}
	for _, r := range rows {
		got[r.Resource] = r
	}
	if want := map[string]lease.Record{"agent/a": renewed, "deliver/a": released}; !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestInboxes(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "registry.db"))
	first := []store.KnownInbox{{Agent: "a", Signature: "s", Started: true, Head: 3, Acked: 2, Dead: 1}, {Agent: "b"}}
	for _, put := range [][]store.KnownInbox{first, first[:1], nil} {
		if err := d.SaveInboxes(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		got, err := d.Inboxes(t.Context())
		if err != nil || len(got) != len(put) {
			t.Fatalf("got %v, %v", got, err)
		}
		for _, want := range put {
			if got[want.Agent] != want {
				t.Errorf("got %+v, want %+v", got[want.Agent], want)
			}
		}
	}
}

// S9, and a file that is no database.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "registry.db")
	d := open(t, path)
	if err := d.SaveInboxes(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if i, err := os.Stat(f); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, i.Mode(), err)
		}
	}
	bad := filepath.Join(dir, "bad.db")
	if err := os.WriteFile(bad, []byte("this is not a database, whatever its name says; not at all a database....................."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := homedb.Open(t.Context(), bad); err == nil {
		t.Error("opened a file that is no database")
	}
}

// S4-10: the states of the bindings, also after a restart.
func TestRevisions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	var last *homedb.DB
	storetest.Revisions(t, func(t *testing.T) store.Revisions {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = open(t, path)
		return last
	})
}

func TestApprovals(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "registry.db"))
	storetest.Approvals(t, d, func(agent string) error { return d.Forget(t.Context(), agent) })
}

// A file of format 1 is continued with all that it has, also one whose upgrade was killed before
// its end; an older build refuses it then, as this one refuses the next format.
func TestFormats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	lease := lease.Record{Resource: "agent/a", Token: 7, Holder: "h", TTL: time.Second, Expires: time.UnixMilli(1)}
	d := open(t, path)
	if err := errors.Join(d.Save(t.Context(), lease), d.Close()); err != nil {
		t.Fatal(err)
	}
	format := func(statements ...string) (n int) {
		t.Helper()
		raw, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range statements {
			_, again := raw.ExecContext(t.Context(), q)
			err = errors.Join(err, again)
		}
		if err = errors.Join(err, raw.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&n), raw.Close()); err != nil {
			t.Fatal(err)
		}
		return n
	}
	asked := store.Approval{ID: "1", Agent: "a", Key: "k", State: "pending", Kind: "exec", Requested: time.UnixMilli(1), Expires: time.Now().Add(time.Hour).Truncate(time.Millisecond)}
	for _, before := range [][]string{{"DROP TABLE exec_policy", "DROP TABLE question", "ALTER TABLE approval DROP COLUMN kind", "ALTER TABLE approval DROP COLUMN decided_by", "PRAGMA user_version = 2"}, {"DROP TABLE binding_rev", "PRAGMA user_version = 1"}, {"PRAGMA user_version = 1"}, {"DROP TABLE binding_rev", "PRAGMA user_version = 0"}, {"DROP TABLE mcp_pin", "PRAGMA user_version = 3"}, {"DROP TABLE cursor", "DROP TABLE pairing", "PRAGMA user_version = 4"}} {
		format(before...)
		d := open(t, path)
		if _, err := d.PutRevision(t.Context(), 0, []byte("b"), 1); err != nil {
			t.Errorf("%v: %v", before, err)
		}
		if rows, err := d.Load(t.Context()); err != nil || len(rows) != 1 || rows[0] != lease {
			t.Errorf("%v: leases %+v, %v", before, rows, err)
		}
		if p, err := d.ExecPolicy(t.Context()); err != nil || p.Version != 0 {
			t.Errorf("%v: policy %+v, %v", before, p, err)
		}
		if list, err := d.Pins(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("%v: pins %+v, %v", before, list, err)
		}
		cursors, err := d.Cursors(t.Context())
		pairings, again := d.Pairings(t.Context(), "")
		if err != nil || again != nil || len(cursors)+len(pairings) != 0 {
			t.Errorf("%v: cursors %+v, %v; pairings %+v, %v", before, cursors, err, pairings, again)
		}
		_ = d.PutApproval(t.Context(), asked, "", nil)
		if a, there, err := d.Approval(t.Context(), "1", "", ""); err != nil || !there || a != asked {
			t.Errorf("%v: approval %+v, %v", before, a, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if n := format(); n != 5 {
			t.Errorf("%v: format %d", before, n)
		}
	}
	format("PRAGMA user_version = 6")
	if _, err := homedb.Open(t.Context(), path); !fault.Is(err, fault.FormatMismatch) {
		t.Errorf("a newer format: %v", err)
	}
}

// S3-48: questions, also after a restart.
func TestQuestions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	var last *homedb.DB
	storetest.Questions(t, func(t *testing.T) store.Questions {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = open(t, path)
		return last
	})
}

// S3-59: tools of MCP servers, also after a restart.
func TestPins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	var last *homedb.DB
	storetest.Pins(t, func(t *testing.T) store.Pins {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = open(t, path)
		return last
	})
}

// Cursors and pairings of channel accounts, also after a restart.
func TestChannels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	var last *homedb.DB
	again := func(t *testing.T) *homedb.DB {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = open(t, path)
		return last
	}
	storetest.Cursors(t, func(t *testing.T) store.Cursors { return again(t) })
	storetest.Pairings(t, func(t *testing.T) store.Pairings { return again(t) })
	db, now := again(t), store.Fence{Resource: "channel/late"}
	db.Live = func(f store.Fence) error {
		if f != now {
			return store.ErrLeaseLost
		}
		return nil
	}
	storetest.Readers(t, db, func() store.Fence { now.Token++; return now })
}
