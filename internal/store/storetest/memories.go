package storetest

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
)

const layerA = "memory/thread-x.md"

// digest is the nth digest of a layer.
func digest(layer string, n, upto int64) store.Compaction {
	return store.Compaction{
		After:    n - 1,
		Mark:     store.MemoryMark{Layer: layer, Digested: upto, Base: "none", Text: "text"},
		Decision: store.Decision{Key: "compact:" + layer, Content: `{"decision":"compaction"}`},
	}
}

func (f *fixture) marks(t *testing.T, r store.Ref, layers ...string) []store.MemoryMark {
	t.Helper()
	out, err := f.Memory(t.Context(), r, layers...)
	ok(t, err)
	return out
}

var memories = map[string]func(*testing.T, *fixture){
	"a digest is committed once, with its decision": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		c := digest(layerA, 1, 1)
		c.Decision.Turn, c.Decision.Step = p.Key, step(1, store.StepCompaction, "compact:thread:1", "", store.StepDone)
		want := c.Mark
		want.N = 1
		for range 3 {
			m, err := f.Compact(t.Context(), threadA, runner, c)
			ok(t, err)
			equal(t, "mark", m, want)
		}
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "decision"})
		equal(t, "steps", len(f.turn(t, p).Steps), 1)
		equal(t, "begun again", f.begin(t, p, true).CrashAttempts, 1) // it was progress
		ok(t, f.MemoryWritten(t.Context(), threadA, layerA, 2))
		equal(t, "another digest's file", f.marks(t, threadA, layerA)[0].Text, "text")
		ok(t, f.MemoryWritten(t.Context(), threadA, layerA, 1))
		equal(t, "its file", f.marks(t, threadA, layerA)[0].Text, "")
		m, err := f.Compact(t.Context(), threadA, runner, c)
		ok(t, err)
		equal(t, "repeated after it", m.Text, "")
	},
	"a mark moves by one and never back": func(t *testing.T, f *fixture) {
		f.claim(t, "1")
		_, err := f.Compact(t.Context(), threadA, runner, digest(layerA, 1, 7))
		ok(t, err)
		for _, c := range []store.Compaction{digest(layerA, 1, 9), digest(layerA, 3, 9), digest(layerA, 2, 6)} {
			_, err := f.Compact(t.Context(), threadA, runner, c)
			is(t, err, store.ErrMemoryMoved)
		}
		equal(t, "mark", f.marks(t, threadA, layerA)[0].Digested, int64(7))
		equal(t, "events", kinds(f.all(t, threadA)), []string{"in", "decision"})
	},
	"a lost lease digests nothing": func(t *testing.T, f *fixture) {
		f.claim(t, "1")
		f.revoke(runner.Resource, runner.Token)
		_, err := f.Compact(t.Context(), threadA, runner, digest(layerA, 1, 1))
		is(t, err, store.ErrLeaseLost)
		is(t, f.CountCompaction(t.Context(), "a", runner, threadA.Thread, 1), store.ErrLeaseLost)
		equal(t, "mark", f.marks(t, threadA, layerA), []store.MemoryMark{{Layer: layerA}})
	},
	"a claim brings the marks": func(t *testing.T, f *fixture) {
		p, _ := f.claim(t, "1")
		_, err := f.Compact(t.Context(), threadA, runner, digest(layerA, 1, 1))
		ok(t, err)
		b := begin(p)
		b.Alone, b.Layers = true, []string{"memory/other.md", layerA}
		out, err := f.Begin(t.Context(), threadA, runner, b)
		ok(t, err)
		equal(t, "marks", []int64{out.Memory[0].N, out.Memory[1].N, out.Memory[1].Digested}, []int64{0, 1, 1})
	},
	"the agent's layer catches up": func(t *testing.T, f *fixture) {
		const own = "memory/agent.md"
		for _, n := range []int64{2, 1, 3} {
			ok(t, f.CountCompaction(t.Context(), "a", runner, "threads/x", n))
		}
		ok(t, f.CountCompaction(t.Context(), "a", runner, "threads/y", 2))
		list, total, err := f.UnseenThreads(t.Context(), "a", 1)
		ok(t, err)
		equal(t, "unseen", []any{len(list), list[0].Layer, list[0].N, total}, []any{1, "threads/x", int64(3), int64(5)})
		c := digest(own, 1, 0)
		c.Decision, c.Threads = store.Decision{}, []store.MemoryMark{{Layer: "threads/x", N: 9, Digested: 40}}
		_, err = f.Compact(t.Context(), inboxA, runner, c)
		ok(t, err)
		list, total, err = f.UnseenThreads(t.Context(), "a", 9)
		ok(t, err)
		equal(t, "unseen", []any{len(list), list[0].Layer, total}, []any{1, "threads/y", int64(2)})
		ok(t, f.CountCompaction(t.Context(), "a", runner, "threads/x", 4))
		list, _, err = f.UnseenThreads(t.Context(), "a", 9)
		ok(t, err)
		equal(t, "records read", list[0].Digested, int64(40))
	},
}
