package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// Questions tests that an engine keeps questions. Each call of open must open the same tables
// again, which hold no question before the first.
func Questions(t *testing.T, open func(t *testing.T) store.Questions) {
	db, ctx := open(t), t.Context()
	now := time.Now().Truncate(time.Millisecond)
	question := func(n int) store.Question {
		return store.Question{
			ID: fmt.Sprint("id", n), Agent: fmt.Sprint("a", n%2), Thread: "threads/main", Key: fmt.Sprint("k", n), Text: "which? \u2713",
			Options: []string{"main", `sav"ings`}, AllowText: true, Peer: "external:tui:main:dm:s:bob", After: 7,
			State: store.QuestionPending, Requested: now, Expires: now.Add(time.Hour),
		}
	}
	for n := range 4 {
		q := question(n)
		if n == 1 {
			q.Options, q.AllowText = nil, false
		}
		ok(t, db.PutQuestion(ctx, q, ""))
	}
	again := question(0)
	again.ID = "other"
	is(t, db.PutQuestion(ctx, again, ""), store.ErrMoved) // the key has one

	// Of many that answer one succeeds.
	var won atomic.Int64
	var answer atomic.Value
	var g sync.WaitGroup
	for n := range 8 {
		g.Go(func() {
			q := question(0)
			q.State, q.Answer, q.By, q.Ended = store.QuestionAnswered, fmt.Sprint("answer ", n), "owner", now.Add(time.Second)
			switch err := db.PutQuestion(ctx, q, store.QuestionPending); {
			case err == nil:
				won.Add(1)
				answer.Store(q)
			case !errors.Is(err, store.ErrMoved):
				t.Error(err)
			}
		})
	}
	g.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d answers were taken", won.Load())
	}

	db = open(t)
	for _, by := range [][3]string{{"id0", "", ""}, {"", "a0", "k0"}} {
		got, there, err := db.Question(ctx, by[0], by[1], by[2])
		ok(t, err)
		if want := answer.Load(); !there || !reflect.DeepEqual(got, want) {
			t.Errorf("by %v: %v\n got %+v\nwant %+v", by, there, got, want)
		}
	}
	if _, there, err := db.Question(ctx, "none", "", ""); there || err != nil {
		t.Errorf("one that is not there: %v %v", there, err)
	}
	list := func(after, agent, state string, limit int, want ...string) {
		t.Helper()
		got, err := db.Questions(ctx, after, agent, state, limit)
		ok(t, err)
		var ids []string
		for _, q := range got {
			ids = append(ids, q.ID)
		}
		if !reflect.DeepEqual(ids, want) {
			t.Errorf("after %q of %q in state %q: %v, want %v", after, agent, state, ids, want)
		}
	}
	list("", "", "", 9, "id0", "id1", "id2", "id3")
	list("id0", "", "", 2, "id1", "id2")
	list("", "a0", "", 9, "id0", "id2")
	list("", "", store.QuestionPending, 9, "id1", "id2", "id3")

	// A question is forgotten 7 days after its end, and after its time when it has none.
	for n := 4; n < 8; n++ {
		q := question(n)
		q.Agent = "a0" // of PostgreSQL each agent's are forgotten when it asks
		q.Expires = now.Add(-store.QuestionsKept - time.Minute)
		switch n {
		case 4: // ended, and recently
			q.State, q.Ended = store.QuestionExpired, now
		case 5: // ended long ago, before its time
			q.State, q.Ended, q.Expires = store.QuestionCanceled, q.Expires, now
		case 6: // never ended
		case 7:
			q.Expires = now
		}
		ok(t, db.PutQuestion(ctx, q, ""))
	}
	list("id3", "a0", "", 9, "id4", "id7")
}
