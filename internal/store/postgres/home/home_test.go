package home_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/agentlog"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
	"github.com/theclaw/agents/internal/store/storetest"
)

func open(t *testing.T) *home.DB {
	d, _ := opened(t)
	return d
}

func opened(t *testing.T) (*home.DB, *pgxpool.Pool) {
	t.Helper()
	c := pgtest.Shared(t)
	s, err := pool.Open(t.Context(), c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return home.New(s), s
}

// S5 among registries: a question stands once under its key, and of many that change it
// one succeeds.
func TestApprovals(t *testing.T) {
	d := open(t)
	ctx, now := t.Context(), time.Now().Truncate(time.Millisecond)
	var first store.Approval
	for i := range 6 {
		a := store.Approval{
			ID: fmt.Sprint("id", i), Agent: fmt.Sprint("a", i%3), Thread: "threads/main", Key: fmt.Sprint("k", i), Command: "ls", Cwd: "/w", Reason: "why",
			Digest: "d", State: "pending", Requested: now, Expires: now.Add(time.Hour),
		}
		if err := d.PutApproval(ctx, a, "", nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = a
		}
	}
	again := first
	again.ID = "other"
	if err := d.PutApproval(ctx, again, "", nil); !errors.Is(err, store.ErrMoved) {
		t.Errorf("asked twice under one key: %v", err)
	}
	for _, by := range [][3]string{{"id0", "", ""}, {"", "a0", "k0"}} {
		if got, there, err := d.Approval(ctx, by[0], by[1], by[2]); err != nil || !there || got != first {
			t.Errorf("by %v: %+v %v %v", by, got, there, err)
		}
	}
	if _, there, err := d.Approval(ctx, "none", "", ""); there || err != nil {
		t.Errorf("none: %v %v", there, err)
	}
	var won atomic.Int64
	var g sync.WaitGroup
	for token := range uint64(8) {
		g.Go(func() {
			a := first
			a.State, a.Token = "used", token+1
			if err := d.PutApproval(ctx, a, "pending", nil); err == nil {
				won.Add(1)
			} else if !errors.Is(err, store.ErrMoved) {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if won.Load() != 1 {
		t.Errorf("%d took it", won.Load())
	}
	var ids []string
	for after := ""; ; {
		page, err := d.Approvals(ctx, after, "", "pending", 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page {
			ids, after = append(ids, a.ID), a.ID
		}
		if len(page) < 2 {
			break
		}
	}
	if fmt.Sprint(ids) != "[id1 id2 id3 id4 id5]" {
		t.Errorf("pending %v", ids)
	}
}

// A quota is given away once, however many registries count.
func TestCount(t *testing.T) {
	d := open(t)
	full := errors.New("full")
	var taken atomic.Int64
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 5 {
				err := d.Count(t.Context(), "2026-01-02", "a", "bob", func(all, one store.Used) (store.Used, error) {
					if all.Messages >= 20 || one != (store.Used{}) && one.Messages != all.Messages {
						return store.Used{}, full
					}
					return store.Used{Messages: 1, Tokens: 10}, nil
				})
				if err == nil {
					taken.Add(1)
				} else if !errors.Is(err, full) {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	if taken.Load() != 20 {
		t.Errorf("%d of 20 were given away", taken.Load())
	}
	if used, err := d.Used(t.Context(), "2026-01-02", "a"); err != nil || used.Messages != 20 || used.Tokens != 200 {
		t.Errorf("%+v %v", used, err)
	}
	if used, err := d.Used(t.Context(), "2026-01-03", "a"); err != nil || used.Tokens != 0 {
		t.Errorf("on another day: %+v %v", used, err)
	}
	if err := d.Count(t.Context(), "2026-01-03", "a", "bob", func(all, one store.Used) (store.Used, error) {
		if all.Messages != 0 || one.Tokens != 0 {
			t.Errorf("the next day begins with %+v %+v", all, one)
		}
		return store.Used{}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The rate of a pair of agents holds over all registries, the wait that is told is true,
// and each pair has a rate of its own.
func TestPace(t *testing.T) {
	d, s := opened(t)
	for _, id := range []string{"a", "b"} {
		if err := agents.New(s).Create(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
	}
	other := home.New(s) // as another registry
	var let atomic.Int64
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for range 10 {
				over, err := []*home.DB{d, other}[i%2].Pace(t.Context(), "x", "a", time.Second, 20*time.Second)
				switch {
				case err != nil:
					t.Error(err)
				case over == 0:
					let.Add(1)
				case over > 2*time.Second:
					t.Errorf("told to wait %s", over)
				}
			}
		})
	}
	g.Wait()
	if n := let.Load(); n < 20 || n > 25 { // and one for each second that it took
		t.Errorf("%d of 20 were let", n)
	}
	for _, p := range [][2]string{{"y", "a"}, {"x", "b"}, {"x", "nobody"}} {
		if over, err := d.Pace(t.Context(), p[0], p[1], time.Second, 20*time.Second); err != nil || over != 0 {
			t.Errorf("%v: %s, %v", p, over, err)
		}
	}
	if over, err := d.Pace(t.Context(), "y", "a", 21*time.Second, 20*time.Second); err != nil || over == 0 {
		t.Errorf("more than all: %s, %v", over, err)
	}
}

// Of the lines that were written at once those of a peer go, and the others stay as they
// are; a row with no other goes whole.
func TestEraseLines(t *testing.T) {
	d, set := opened(t)
	ctx := t.Context()
	if err := agents.New(set).Create(ctx, "a", nil); err != nil {
		t.Fatal(err)
	}
	b := agentlog.New(set, func(err error) { t.Error(err) })
	at := time.Now().UTC().Truncate(time.Millisecond)
	for _, list := range [][]string{
		{"inbox event 1 \x00\x01\xff", "inbox event 2 \x00\x01\xff", "inbox event 1", "of nobody, {\"x\"}"},
		{"inbox event 1", "threads/bob: \x00"},
		{"of nobody"},
	} {
		for i, text := range list {
			b.Say("a", store.LogLine{At: at.Add(time.Duration(i) * time.Second), Level: fmt.Sprint("L", i), Text: text})
		}
		b.Flush()
	}
	for range 2 { // a repetition changes nothing
		if err := d.ErasePeer(ctx, "a", store.PeerRecords{Threads: []string{"threads/bob"}, Inbox: []int64{1}}); err != nil {
			t.Fatal(err)
		}
		got, err := b.Read(ctx, "a", 10)
		want := []store.LogLine{{At: at.Add(time.Second), Level: "L1", Text: "inbox event 2 \x00\x01\xff"}, {At: at.Add(3 * time.Second), Level: "L3", Text: "of nobody, {\"x\"}"}, {At: at, Level: "L0", Text: "of nobody"}}
		if err != nil || !slices.EqualFunc(got, want, func(a, b store.LogLine) bool { return a.At.Equal(b.At) && a.Level == b.Level && a.Text == b.Text }) {
			t.Errorf("left %q, %v", got, err)
		}
		var rows int
		if err := set.QueryRow(ctx, "SELECT count(*) FROM agent_log").Scan(&rows); err != nil || rows != 2 {
			t.Errorf("%d rows, %v", rows, err)
		}
	}
}

func TestApprovalsAndPolicy(t *testing.T) {
	d, s := opened(t)
	if err := agents.New(s).Create(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	storetest.Approvals(t, d, func(agent string) error { return agents.New(s).Remove(t.Context(), agent) })
}

// S4-10: the states of the bindings, as another registry finds them.
func TestRevisions(t *testing.T) {
	d, s := opened(t)
	storetest.Revisions(t, func(*testing.T) store.Revisions {
		defer func() { d = home.New(s) }()
		return d
	})
}

// Of registries that change the bindings at once one succeeds, and each state is there once.
func TestRevisionsOfMany(t *testing.T) {
	d, s := opened(t)
	var won atomic.Int64
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			r, err := home.New(s).PutRevision(t.Context(), 0, []byte(fmt.Sprint(i)), 4)
			if err == nil && r.Rev == 1 {
				won.Add(1)
			} else if !errors.Is(err, store.ErrMoved) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	g.Wait()
	if list, err := d.Revisions(t.Context(), 9); err != nil || len(list) != 1 || won.Load() != 1 {
		t.Errorf("%d succeeded: %+v, %v", won.Load(), list, err)
	}
}

// A file of the home is replaced by who knows its version, and one registry makes it.
func TestHomeFiles(t *testing.T) {
	d, s := opened(t)
	ctx := t.Context()
	if data, version, err := d.HomeFile(ctx, "edge.yaml"); data != nil || version != "" || err != nil {
		t.Errorf("none: %q %q %v", data, version, err)
	}
	if _, err := d.PutHomeFile(ctx, "edge.yaml", []byte("x"), "v"); !errors.Is(err, store.ErrMoved) {
		t.Errorf("replaced what is not there: %v", err)
	}
	var mu sync.Mutex
	var first string
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			v, err := home.New(s).PutHomeFile(ctx, "edge.yaml", []byte(fmt.Sprint("bindings: [] # ", i)), "")
			if err != nil && !errors.Is(err, store.ErrMoved) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && first != "" {
				t.Error("made twice")
			} else if err == nil {
				first = v
			}
		})
	}
	g.Wait()
	old, version, err := d.HomeFile(ctx, "edge.yaml")
	if err != nil || version == "" || version != first {
		t.Errorf("made: %q %q %v", old, version, err)
	}
	second, err := d.PutHomeFile(ctx, "edge.yaml", nil, first)
	if err != nil || second == first {
		t.Errorf("replaced: %q %v", second, err)
	}
	if _, err := d.PutHomeFile(ctx, "edge.yaml", []byte("late"), first); !errors.Is(err, store.ErrMoved) {
		t.Errorf("replaced by an old version: %v", err)
	}
	if data, version, err := d.HomeFile(ctx, "edge.yaml"); data == nil || len(data) != 0 || version != second || err != nil {
		t.Errorf("an empty one: %v %q %v", data, version, err)
	}
	if data, _, err := d.HomeFile(ctx, "other"); data != nil || err != nil {
		t.Errorf("another: %v %v", data, err)
	}
}
