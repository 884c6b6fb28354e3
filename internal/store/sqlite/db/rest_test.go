package db

import (
	"os"
	"testing"
	"time"
)

// A database that was written says at its end what it looks like; whoever writes after
// that leaves another look, however soon.
func TestRest(t *testing.T) {
	dir := fresh(t)
	for i := range 20 {
		d := open(t, dir, Options{})
		must(t, d.Do(t.Context(), true, insert("1")))
		r, ok, err := d.Rest()
		if err != nil || !ok || r.Head != int64(i+1) || time.Since(r.Written) > time.Minute || r.LastAt == "" {
			t.Fatalf("round %d: %+v, %v, %v", i, r, ok, err)
		}
		st, err := os.Stat(d.name)
		must(t, err)
		if !st.ModTime().Equal(r.Written) || st.Size() != r.Size {
			t.Errorf("round %d: %v, %d bytes; said %+v", i, st.ModTime(), st.Size(), r)
		}
	}
	f := foreign(t, dir)
	exec := func(q string) {
		t.Helper()
		if _, err := f.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	const push = "INSERT INTO events(source, type, content) VALUES('s', 'message', 'theirs')"
	d := open(t, dir, Options{})
	must(t, d.Do(t.Context(), true, insert("ours")))
	exec(push)
	if r, ok, err := d.Rest(); err != nil || ok {
		t.Errorf("with another program at it: %+v, %v, %v", r, ok, err)
	}
	must(t, f.Close())
	d = open(t, dir, Options{})
	must(t, d.View(t.Context(), func(*Tx) error { return nil }))
	if _, ok, err := d.Rest(); err != nil || ok {
		t.Errorf("only read: %v, %v", ok, err)
	}
	d = open(t, dir, Options{})
	must(t, d.Do(t.Context(), true, insert("ours")))
	r, ok, err := d.Rest()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	f = foreign(t, dir)
	exec(push)
	must(t, f.Close())
	if st, err := os.Stat(d.name); err != nil || st.ModTime().Equal(r.Written) {
		t.Errorf("another program wrote, and the time is as before: %v", err)
	}
}
