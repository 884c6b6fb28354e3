package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/store"
)

// Revisions tests that an engine keeps the states of the bindings. Each call of open must open
// the same tables again, which hold no state before the first.
func Revisions(t *testing.T, open func(t *testing.T) store.Revisions) {
	db := open(t)
	compare := func(what string, got []store.Revision, want ...store.Revision) {
		t.Helper()
		if !slices.EqualFunc(got, want, func(a, b store.Revision) bool {
			return a.Rev == b.Rev && a.At.Equal(b.At) && bytes.Equal(a.Body, b.Body)
		}) {
			t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
		}
	}
	want := func(what string, list ...store.Revision) {
		t.Helper()
		got, err := db.Revisions(t.Context(), 10)
		ok(t, err)
		compare(what, got, list...)
	}
	put := func(was int64, body string, keep int) store.Revision {
		t.Helper()
		r, err := db.PutRevision(t.Context(), was, []byte(body), keep)
		ok(t, err)
		return r
	}
	want("before the first")
	_, err := db.PutRevision(t.Context(), 7, []byte("a"), 3)
	is(t, err, store.ErrMoved)
	want("after a refusal")

	first := put(0, "a", 3)
	if first.Rev != 1 || string(first.Body) != "a" || first.At.IsZero() {
		t.Errorf("the first: %+v", first)
	}
	compare("the same again, as after a lost answer", []store.Revision{put(0, "a", 3)}, first)
	compare("the same again", []store.Revision{put(1, "a", 3)}, first)
	_, err = db.PutRevision(t.Context(), 0, []byte("b"), 3)
	is(t, err, store.ErrMoved)
	want("after repeats", first)

	second := put(1, "b", 3)
	third := put(2, "a", 3) // an earlier body is a new state all the same
	want("the newest first", third, second, first)
	got, err := db.Revisions(t.Context(), 2)
	ok(t, err)
	compare("at most two", got, third, second)

	empty := put(3, "", 3)
	if empty.Rev != 4 || len(empty.Body) != 0 {
		t.Errorf("one without a body: %+v", empty)
	}
	compare("the same without a body", []store.Revision{put(3, "", 3)}, empty)
	want("the three newest", empty, third, second)

	db = open(t)
	want("opened again", empty, third, second)
	list := []store.Revision{empty}
	for n := range int64(3) {
		list = append([]store.Revision{put(4+n, fmt.Sprint(n), 2)}, list...)
	}
	want("the two newest", list[:2]...)
	last := put(7, "last", 0)
	if last.Rev != 8 {
		t.Errorf("the last: %+v", last)
	}
	want("the newest alone, which always stays", last)
}
