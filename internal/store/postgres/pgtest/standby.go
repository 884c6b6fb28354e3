package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby makes a copy of the running server that follows it, and makes the server
// acknowledge nothing that the copy does not have on its disk. It ends with the test.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	s := &Cluster{bin: c.bin, as: c.as, port: c.port}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir, s.data = dir, filepath.Join(dir, "data")
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, "pg_basebackup", "--pgdata", s.data, "--host", c.dir, "--username", "claw", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	s.configure(t, "unix_socket_directories = '"+dir+"'", "synchronous_standby_names = ''",
		"primary_conninfo = 'host="+c.dir+" user=claw application_name=second'")
	if err := os.WriteFile(filepath.Join(s.data, "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s.as != nil {
		if err := os.Chown(filepath.Join(s.data, "standby.signal"), int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.Up(t)
	t.Cleanup(func() { s.Kill(t) })
	c.exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'second'")
	c.exec(t, "SELECT pg_reload_conf()")
	c.await(t, "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')")
	return s
}

// Promote makes a standby the server, and waits until it takes writes.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.exec(t, "SELECT pg_promote()")
	c.await(t, "SELECT NOT pg_is_in_recovery()")
}

// Gone waits until no connection of an application is left: what a process had sent
// before it died the server may do after that.
func (c *Cluster) Gone(t testing.TB, application string) {
	t.Helper()
	c.await(t, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = '"+application+"')")
}

// Failover is the address of a database at whichever of two servers takes writes.
func Failover(first, second *Cluster, db string) string {
	return "postgres://claw@/" + db + "?host=" + first.dir + "," + second.dir + "&port=5432,5432&connect_timeout=2"
}

// OnlyReads lets the server take no writes, of whoever is connected too, as one that became
// a standby; or take them again.
func (c *Cluster) OnlyReads(t testing.TB, yes bool) {
	t.Helper()
	c.configure(t, fmt.Sprint("default_transaction_read_only = ", yes))
	c.exec(t, "SELECT pg_reload_conf()")
	c.await(t, fmt.Sprintf("SELECT current_setting('default_transaction_read_only')::bool = %v", yes))
}

// configure adds lines to postgresql.conf.
func (c *Cluster) configure(t testing.TB, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(c.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		_, wrote := f.WriteString(line + "\n")
		err = errors.Join(err, wrote)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) exec(t testing.TB, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), sql)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// await asks on a new connection each time: who connects sees a setting of which all who
// are connected were told before.
func (c *Cluster) await(t testing.TB, sql string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		conn, err := pgx.Connect(t.Context(), c.url("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		var ok bool
		err = conn.QueryRow(t.Context(), sql).Scan(&ok)
		if err := errors.Join(err, conn.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never true: %s", sql)
		}
	}
}

// Name is the name of the database behind an address.
func Name(t testing.TB, url string) string {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return c.Database
}
