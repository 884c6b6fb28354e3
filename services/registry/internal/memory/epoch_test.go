package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/standalone"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

var (
	talk  = store.Ref{Agent: "a1", Thread: "threads/peers/main-bob"}
	layer = ThreadLayer(talk.Thread)
	run   = store.Fence{Resource: lease.AgentResource("a1"), Token: 1}
)

const past = "memory/past/thread-threads%2Fpeers%2Fmain-bob"

// place is an agent with a conversation of three messages.
type place struct {
	*testing.T
	dir    agentdir.Dir
	engine *sqlite.Engine
	files  *Files
}

func newPlace(t *testing.T) *place {
	t.Helper()
	home, err := agentdir.OpenHome(t.TempDir())
	must(t, err)
	dir, err := home.Create("a1", agentdir.Spec{Prepare: func(dir string) error {
		_, err := db.Create(filepath.Join(dir, "inbox"))
		return err
	}})
	must(t, err)
	engine := sqlite.New(sqlite.Options{
		Live: func(string, uint64) error { return nil },
		Path: func(r store.Ref) (string, error) { return filepath.Join(home.AgentDir(r.Agent), r.Thread), nil },
	})
	t.Cleanup(func() { _ = errors.Join(engine.Close(), home.Close()) })
	_, err = engine.Ensure(t.Context(), talk, "{}")
	must(t, err)
	var said []store.NewEvent
	for range 3 {
		said = append(said, store.NewEvent{Source: "external:telegram:main:dm:bob:bob", Type: thread.TypeMessage, Content: "hello"})
	}
	_, err = engine.Append(t.Context(), talk, said, store.AppendOptions{Fence: &run})
	must(t, err)
	p := &place{T: t, dir: dir, engine: engine}
	p.files = p.over(standalone.NewFiles(home), engine)
	return p
}

func (p *place) over(agents Agents, s store.Memories) *Files {
	return &Files{Faults: wire.Faults{Engine: func(error) *fault.Error { return nil }}, Store: s, Agents: agents, Term: func(store.Fence) uint64 { return 1 }, Log: slog.New(slog.DiscardHandler)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// digest commits the nth digest up to an event, whose text is not in the file yet.
func (p *place) digest(n, upto int64, text string) store.MemoryMark {
	p.Helper()
	_, base, err := p.files.file(p.Context(), "a1", layer)
	must(p.T, err)
	m, err := p.engine.Compact(p.Context(), talk, run, store.Compaction{After: n - 1, Mark: store.MemoryMark{Layer: layer, Digested: upto, Base: base, Text: text}})
	must(p.T, err)
	return m
}

func (p *place) settle(m store.MemoryMark) {
	p.Helper()
	must(p.T, p.files.SettleMark(p.Context(), state.NewAgent("a1"), run, talk, m))
}

func (p *place) write(text string) {
	p.Helper()
	_, err := p.dir.WriteFile(layer, []byte(text), "")
	must(p.T, err)
}

// texts are the files of the thread's memory that are not empty, by name.
func (p *place) texts() map[string]string {
	p.Helper()
	out := map[string]string{}
	for _, dir := range []string{"memory", "memory/past"} {
		names, err := p.dir.OwnFiles(dir)
		must(p.T, err)
		for _, n := range names {
			data, err := os.ReadFile(filepath.Join(p.dir.Path, dir, n))
			must(p.T, err)
			if len(data) > 0 {
				out[dir+"/"+n] = string(data)
			}
		}
	}
	return out
}

func (p *place) want(what string, want map[string]string) {
	p.Helper()
	if got := p.texts(); !maps.Equal(got, want) {
		p.Errorf("%s: %q, want %q", what, got, want)
	}
}

// mark is the mark of the thread.
func (p *place) mark() store.MemoryMark {
	p.Helper()
	m, err := p.engine.Memory(p.Context(), talk, layer)
	must(p.T, err)
	return m[0]
}

// A process that dies at a change: before the nth it makes, or right after it.
type mortal struct {
	Agents
	store.Memories
	left   int
	before bool
	done   []string
}

var errKilled = errors.New("killed")

func (m *mortal) step(what string, do func() error) error {
	if m.left--; m.left < 0 || m.left == 0 && m.before {
		return errKilled
	}
	m.done = append(m.done, what)
	if err := do(); err != nil || m.left > 0 {
		return err
	}
	return errKilled
}

func (m *mortal) Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error) {
	err = m.step("write "+name, func() error {
		version, err = m.Agents.Write(ctx, id, name, data, expect)
		return err
	})
	return version, err
}

func (m *mortal) CountCompaction(ctx context.Context, agent string, f store.Fence, thread string, n int64) error {
	return m.step("count", func() error { return m.Memories.CountCompaction(ctx, agent, f, thread, n) })
}

func (m *mortal) MemoryWritten(ctx context.Context, r store.Ref, layer string, n int64) error {
	return m.step("written", func() error { return m.Memories.MemoryWritten(ctx, r, layer, n) })
}

// claim is what a claim of the epoch that begins behind event 3 does with the file of the
// thread; it returns the texts of the prompt.
func claim(ctx context.Context, f *Files, m store.MemoryMark) (string, error) {
	a := state.NewAgent("a1")
	if err := f.Settle(ctx, a, run, talk, []store.MemoryMark{m}); err != nil {
		return "", err
	}
	files, err := f.InEpoch(ctx, a, run, talk, 3, m, f.Read(ctx, "a1", []string{layer}, nil))
	var out []string
	for _, file := range files {
		out = append(out, file.GetContent())
	}
	return strings.Join(out, ""), err
}

// The digest of an earlier epoch is moved once, in no order of steps shown, and
// not lost, wherever the process is killed: with the digest in its file, or only committed.
func TestKilledWhileADigestIsMoved(t *testing.T) {
	for _, committed := range []bool{false, true} {
		steps := 100 // as many as there are
		for n := 1; n <= steps+1; n++ {
			for _, before := range []bool{true, false} {
				t.Run(fmt.Sprintf("committed only %v, step %d, before it %v", committed, n, before), func(t *testing.T) {
					p := newPlace(t)
					m := p.digest(1, 2, "of the first epoch\n")
					if !committed {
						p.settle(m)
					}
					dies := &mortal{Agents: p.files.Agents, Memories: p.engine, left: n, before: before}
					text, err := claim(t.Context(), p.over(dies, dies), p.mark())
					if text != "" || err != nil && !errors.Is(err, errKilled) {
						t.Fatalf("shown %q, %v", text, err)
					}
					if err == nil {
						steps = min(steps, len(dies.done))
					}
					// The next process, twice.
					for range 2 {
						if text, err := claim(t.Context(), p.files, p.mark()); err != nil || text != "" {
							t.Errorf("the next claim: %q, %v", text, err)
						}
					}
					p.want("after a claim", map[string]string{past + ".2.md": "of the first epoch\n"})
					if m := p.mark(); m.N != 1 || m.Digested != 2 || m.Text != "" {
						t.Errorf("mark %+v", m)
					}
					if unseen, _, err := p.engine.UnseenThreads(t.Context(), "a1", 10); err != nil || len(unseen) != 1 || unseen[0].N != 1 {
						t.Errorf("counted %v, %v", unseen, err)
					}
					// The first digest of the epoch begins from nothing.
					p.settle(p.digest(2, 4, "of the second epoch\n"))
					if text, err := claim(t.Context(), p.files, p.mark()); err != nil || text != "of the second epoch\n" {
						t.Errorf("the epoch's own: %q, %v", text, err)
					}
					p.want("after a digest", map[string]string{past + ".2.md": "of the first epoch\n", layer: "of the second epoch\n"})
				})
			}
		}
		if want := map[bool]int{false: 2, true: 5}[committed]; steps != want {
			t.Errorf("committed only %v: %d steps, want %d", committed, steps, want)
		}
	}
}

// A digest of the epoch stays, and so does every digest of a conversation without epochs.
func TestDigestOfTheEpochStays(t *testing.T) {
	p := newPlace(t)
	p.settle(p.digest(1, 3, "text\n"))
	for _, from := range []int64{0, 1, 2} {
		must(t, p.files.MoveEarlier(t.Context(), state.NewAgent("a1"), run, talk, from))
		p.want(fmt.Sprint("epoch from ", from), map[string]string{layer: "text\n"})
	}
	must(t, p.files.MoveEarlier(t.Context(), state.NewAgent("a1"), run, talk, 3))
	p.want("the next epoch", map[string]string{past + ".3.md": "text\n"})
}

// What a person writes is moved like a digest, next to the one that it follows, and none of
// it is lost.
func TestTextOfAPersonIsMoved(t *testing.T) {
	p := newPlace(t)
	p.settle(p.digest(1, 2, "digest\n"))
	move := func() { must(t, p.files.MoveEarlier(t.Context(), state.NewAgent("a1"), run, talk, 3)) }
	move()
	p.write("mine\n")
	move()
	p.write("mine\n")
	move()
	p.write("digest\n")
	move()
	p.want("after it", map[string]string{past + ".2.md": "digest\n", past + ".2." + agentdir.Version([]byte("mine\n"))[:12] + ".md": "mine\n"})
}

// edits changes the file of the thread right before it is emptied, once.
type edits struct {
	Agents
	edit func()
}

func (e *edits) Write(ctx context.Context, id, name string, data []byte, expect string) (string, error) {
	if edit := e.edit; edit != nil && name == layer && len(data) == 0 {
		e.edit = nil
		edit()
	}
	return e.Agents.Write(ctx, id, name, data, expect)
}

// A person's change, or the first digest of the epoch, that comes between the copy of the file and
// its end is not emptied away.
func TestFileChangesWhileItIsMoved(t *testing.T) {
	p := newPlace(t)
	p.settle(p.digest(1, 2, "digest\n"))
	f := p.over(&edits{p.files.Agents, func() { p.write("digest\nand mine\n") }}, p.engine)
	must(t, f.MoveEarlier(t.Context(), state.NewAgent("a1"), run, talk, 3))
	p.want("a change", map[string]string{past + ".2.md": "digest\n", past + ".2." + agentdir.Version([]byte("digest\nand mine\n"))[:12] + ".md": "digest\nand mine\n"})

	p = newPlace(t)
	p.settle(p.digest(1, 2, "digest\n"))
	f = p.over(&edits{p.files.Agents, func() { p.settle(p.digest(2, 4, "the epoch's own\n")) }}, p.engine)
	must(t, f.MoveEarlier(t.Context(), state.NewAgent("a1"), run, talk, 3))
	p.want("a digest", map[string]string{past + ".2.md": "digest\n", layer: "the epoch's own\n"})
}

// A call that is behind does not bring a digest back that another call has written and moved.
func TestLateSettleWritesNothing(t *testing.T) {
	p := newPlace(t)
	m := p.digest(1, 2, "digest\n")
	if text, err := claim(t.Context(), p.files, m); err != nil || text != "" {
		t.Fatalf("%q, %v", text, err)
	}
	p.settle(m) // as it was read before
	p.want("settled again", map[string]string{past + ".2.md": "digest\n"})
}

// Answers leave the text of an earlier epoch out, also before it is moved.
func TestLayersOfAnEpoch(t *testing.T) {
	p := newPlace(t)
	p.settle(p.digest(1, 2, "digest\n"))
	at := Place{Agent: state.NewAgent("a1"), Thread: talk}
	for from, want := range map[int64]string{0: "digest\n", 1: "digest\n", 2: "", 3: ""} {
		at.EpochFrom = from
		layers, _, err := p.files.Layers(t.Context(), at)
		must(t, err)
		i := slices.IndexFunc(layers, func(l *registryv1.MemoryState) bool {
			return l.GetLayer() == registryv1.MemoryLayer_MEMORY_LAYER_THREAD
		})
		if got := layers[i]; got.GetContent() != want || got.GetDigestedId() != 2 {
			t.Errorf("epoch from %d: %v", from, got)
		}
	}
}
