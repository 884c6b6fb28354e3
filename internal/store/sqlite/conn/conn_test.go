package conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

func open(t testing.TB) conn.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a?b%20#.db") // a path, not a URI
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := conn.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, c.Script("CREATE TABLE v (id INTEGER PRIMARY KEY, a, b, c); -- and\nCREATE TABLE w (x INTEGER); "))
	return c
}

func prepare(t testing.TB, c conn.Conn, sql string) conn.Stmt {
	t.Helper()
	s, err := c.Prepare(sql)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestValuesComeBackAsGiven(t *testing.T) {
	c := open(t)
	put := prepare(t, c, "INSERT INTO v(a, b, c) VALUES(?,?,?)")
	get := prepare(t, c, "SELECT a, b, c FROM v WHERE id = ?")
	text := "ü\x00\xff" + strings.Repeat("long", 50_000)
	for i, in := range [][]any{
		{text, []byte(text), int64(-1) << 63},
		{"", []byte{}, 7},
		{&text, []byte("x"), true},
		{(*string)(nil), []byte(nil), nil},
	} {
		r, err := put.Exec(in)
		if err != nil || r.Changes != 1 || r.LastID != int64(i+1) {
			t.Fatalf("row %d: %+v, %v", i, r, err)
		}
		var a *string
		var b []byte
		var n *int64
		ok, err := get.Row([]any{i + 1}, []any{&a, &b, &n})
		if err != nil || !ok {
			t.Fatalf("row %d: %v, %v", i, ok, err)
		}
		wantA, wantN := map[int]string{0: text, 1: "", 2: text}, map[int]int64{0: -1 << 63, 1: 7, 2: 1}
		if i == 3 && (a != nil || n != nil) || i < 3 && (*a != wantA[i] || *n != wantN[i]) || !bytes.Equal(b, in[1].([]byte)) {
			t.Errorf("row %d came back as %v, %q, %v", i, a, b, n)
		}
	}
	if ok, err := get.Row([]any{99}, nil); ok || err != nil {
		t.Errorf("no row: %v, %v", ok, err)
	}
	var kind string
	if _, err := prepare(t, c, "SELECT typeof(b) FROM v WHERE id = 2").Row(nil, []any{&kind}); err != nil || kind != "blob" {
		t.Errorf("empty bytes are stored as %s, %v", kind, err)
	}
}

func TestWhatDoesNotFitIsAnError(t *testing.T) {
	c := open(t)
	var s string
	var n int64
	var b bool
	var u uint8
	for sql, dest := range map[string]any{
		"SELECT NULL": &s, "SELECT NULL, 1": &s, "SELECT null": &n, "SELECT 'x'": &n, "SELECT 1.5": &n, "SELECT 'true'": &b, "SELECT 1": &u,
	} {
		if ok, err := prepare(t, c, sql).Row(nil, []any{dest}); err == nil {
			t.Errorf("%s into a %T: %v", sql, dest, ok)
		}
	}
	two := prepare(t, c, "SELECT ?, ?")
	for _, args := range [][]any{nil, {1}, {1, uint8(1)}} {
		if _, err := two.Exec(args); err == nil {
			t.Errorf("two parameters took %v", args)
		}
	}
	if _, err := two.Exec([]any{1, 2}); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	for _, sql := range []string{"", "-- nothing", "SELECT 1; SELECT 2", "SELEKT"} {
		if s, err := c.Prepare(sql); err == nil {
			t.Errorf("prepared %q: %v", sql, s.Close())
		}
	}
}

// A loop over one statement may run others; not itself.
func TestStatementsInsideALoop(t *testing.T) {
	c := open(t)
	put, all := prepare(t, c, "INSERT INTO w VALUES(?)"), prepare(t, c, "SELECT x FROM w WHERE x < ? ORDER BY x")
	for i := range 3 {
		_, err := put.Exec([]any{i})
		must(t, err)
	}
	boom, sum := errors.New("boom"), 0
	must(t, all.Each([]any{10}, func(scan func(...any) error) error {
		var x int
		if err := scan(&x); err != nil {
			return err
		}
		sum += x
		if err := all.Each([]any{10}, func(func(...any) error) error { return nil }); err == nil {
			t.Error("a statement ran inside itself")
		}
		_, err := put.Exec([]any{100 + x})
		return err
	}))
	if sum != 3 {
		t.Errorf("saw %d", sum)
	}
	if err := all.Each([]any{200}, func(func(...any) error) error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = all.Each([]any{200}, func(func(...any) error) error { panic("boom") })
	}()
	n := 0
	must(t, all.Each([]any{200}, func(func(...any) error) error { n++; return nil }))
	if n != 6 {
		t.Errorf("%d rows after an error and a panic", n)
	}
}

func TestErrorsCarryTheCode(t *testing.T) {
	if _, err := conn.Open(filepath.Join(t.TempDir(), "none")); code(err)&0xff != sqlite3.SQLITE_CANTOPEN {
		t.Errorf("a database that is not there: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	must(t, os.WriteFile(bad, bytes.Repeat([]byte("not a database. "), 512), 0o600))
	c, err := conn.Open(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Script("SELECT * FROM sqlite_schema"); code(err) != sqlite3.SQLITE_NOTADB {
		t.Errorf("not a database: %v", err)
	}
	must(t, c.Close())
	must(t, c.Close())
	d := open(t)
	put := prepare(t, d, "INSERT INTO v(id) VALUES(?)")
	_, err = put.Exec([]any{1})
	must(t, err)
	if _, err = put.Exec([]any{1}); code(err) != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY && code(err) != sqlite3.SQLITE_CONSTRAINT_ROWID || !strings.Contains(err.Error(), "UNIQUE") {
		t.Errorf("a key twice: %v", err)
	}
	_, err = put.Exec([]any{2})
	must(t, err)
}

func code(err error) int {
	var e *conn.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func BenchmarkRow(b *testing.B) {
	c := open(b)
	s := prepare(b, c, "SELECT ?, ?")
	args := []any{"some text", int64(7)}
	for b.Loop() {
		var t string
		var n int64
		if _, err := s.Row(args, []any{&t, &n}); err != nil {
			b.Fatal(err)
		}
	}
}

// Texts that were read before are answered without a copy; each as it is, whatever was
// in its place.
func TestTextsReadAgain(t *testing.T) {
	c := open(t)
	echo := prepare(t, c, "SELECT ?")
	for round := range 3 {
		for i := range 2000 {
			want := strings.Repeat("x", i%60) + fmt.Sprint(i) + strings.Repeat("y", i%13)
			var got string
			if ok, err := echo.Row([]any{want}, []any{&got}); !ok || err != nil || got != want {
				t.Fatalf("round %d: %q came back as %q, %v", round, want, got, err)
			}
		}
	}
	var got string
	again := []any{"2026-11-22T08:00:00.000Z"}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := echo.Row(again, []any{&got}); err != nil {
			t.Error(err)
		}
	}); n > 1 {
		t.Errorf("%.0f allocations for a text read again", n)
	}
}

// Memory grows with what a connection keeps: pages and statements.
func TestMemory(t *testing.T) {
	c := open(t)
	before := c.Memory()
	must(t, c.Script("INSERT INTO v(a) SELECT zeroblob(500) FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]')"))
	written := c.Memory()
	if before <= 0 || written < before+4<<10 {
		t.Errorf("%d bytes before and %d after 10 KB of rows", before, written)
	}
	s := prepare(t, c, "SELECT id, a, b FROM v WHERE id > ?")
	if n := c.Memory(); n < written+1<<10 {
		t.Errorf("%d bytes before and %d after a statement", written, n)
	}
	must(t, s.Close())
}
