//go:build proof

package powerloss_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/proofs/drill"
)

func anyLease(string, uint64) error { return nil }

// home makes a root with the inbox of the story's agent.
func home(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp(drill.RAM(t), "run")
	if err != nil {
		t.Fatal(err)
	}
	inbox := filepath.Join(root, drill.Agent, "inbox")
	if err := os.MkdirAll(inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Create(inbox); err != nil {
		t.Fatal(err)
	}
	return root
}

// files are all that a cut may touch.
func files(root string) []string {
	var out []string
	for _, th := range []string{"inbox", drill.Thread} {
		path := filepath.Join(root, drill.Agent, th, "events.db")
		out = append(out, path, path+"-wal", path+"-journal")
	}
	return out
}

func engine(root string) *sqlite.Engine {
	return sqlite.New(sqlite.Options{
		Path: func(r store.Ref) (string, error) { return filepath.Join(root, r.Agent, r.Thread), nil },
		Live: anyLease, Connect: wired,
	})
}

// live works until the power goes, or to the end of its messages when it does not.
func live(ctx context.Context, s *drill.Scenario, e *sqlite.Engine, token uint64, n *int, messages int) error {
	runner, sender := store.Fence{Resource: "agent/a", Token: token}, store.Fence{Resource: "deliver/a", Token: token}
	for {
		for range 3 {
			if *n == messages {
				break
			}
			if err := s.Push(ctx, e, *n); err != nil {
				return err
			}
			*n++
		}
		if err := s.Work(ctx, e, runner); err != nil {
			return err
		}
		if err := s.Deliver(ctx, e, sender); err != nil {
			return err
		}
		if *n == messages {
			return nil
		}
	}
}

// cuts lives through some power cuts and then to the end.
func cuts(t *testing.T, chance *rand.Rand, count int) (fig drill.Figures, corrupt, torn int) {
	root, s := home(t), drill.NewScenario()
	current = &disk{files: map[string]*image{}}
	n := 0
	for boot := range count + 1 {
		if boot < count {
			current.cutAt = 1 + chance.IntN(400)
		}
		s.BootID = fmt.Sprint("boot", boot)
		e := engine(root)
		err := live(t.Context(), s, e, uint64(boot+1), &n, 12*count)
		if boot < count {
			current.cut() // it may have come to its end before
			_ = e.Close() // with the power off it cannot change anything
			next := current.restart(chance, files(root))
			torn += current.writes
			current = next
			continue
		}
		if err != nil {
			t.Errorf("after %d cuts: %v", count, err)
			corrupt++
		}
		fig, err = s.Account(t.Context(), e, func(r store.Ref) error { _, err := e.VerifyChain(t.Context(), r); return err }, t.Errorf)
		if err != nil {
			t.Errorf("account: %v", err)
			corrupt++
		}
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, path := range files(root) {
		if filepath.Base(path) == "events.db" && !intact(t, path) {
			corrupt++
		}
	}
	return fig, corrupt, torn
}

// intact asks SQLite itself.
func intact(t *testing.T, path string) bool {
	d, err := db.Open(t.Context(), filepath.Dir(path), db.Options{Connect: wired})
	if err != nil {
		t.Errorf("open %s: %v", path, err)
		return false
	}
	defer func() { _ = d.Close() }()
	var says string
	if err := d.View(t.Context(), func(tx *db.Tx) error { _, err := tx.Row("PRAGMA integrity_check", nil, &says); return err }); err != nil || says != "ok" {
		t.Errorf("%s: %s %v", path, says, err)
		return false
	}
	return true
}

// control makes the same pushes as lazy commits: what a cut then takes away shows
// that the disk bites.
func control(t *testing.T, chance *rand.Rand) (acked, lost int) {
	root := home(t)
	current = &disk{files: map[string]*image{}, cutAt: 1 + chance.IntN(120)}
	dir := filepath.Join(root, drill.Agent, "inbox")
	d, err := db.Open(t.Context(), dir, db.Options{Connect: wired})
	if err == nil {
		for ; acked < 100; acked++ {
			if d.Do(t.Context(), false, func(tx *db.Tx) error {
				_, _, err := tx.InsertOnce(fmt.Sprint(acked), 1, store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: "{}"})
				return err
			}) != nil {
				break
			}
		}
		current.cut()
		_ = d.Close()
	}
	current = current.restart(chance, files(root))
	d, err = db.Open(t.Context(), dir, db.Options{Connect: wired})
	if err != nil {
		t.Errorf("control: open: %v", err) // NORMAL may lose, and never corrupts
		return acked, 0
	}
	defer func() { _ = d.Close() }()
	var head, keys int64
	if err := d.View(t.Context(), func(tx *db.Tx) error {
		var err error
		if head, err = tx.Head(); err == nil {
			_, err = tx.Row("SELECT COUNT(*) FROM x_dedupe", nil, &keys)
		}
		return err
	}); err != nil || keys != head {
		t.Errorf("control: %d events, %d keys, %v", head, keys, err)
	}
	return acked, acked - int(head)
}

// TestPowerLoss cuts the power N times (RELIABILITY P2, sections 1 and 7).
func TestPowerLoss(t *testing.T) {
	const each = 4
	n := drill.Size(t, "N", 20)
	seed, chance := drill.Seed(t)
	var all drill.Figures
	corrupt, torn, done, bites, lostNormal := 0, 0, 0, 0, 0
	for done < n {
		k := min(each, n-done)
		fig, c, w := cuts(t, chance, k)
		all.Add(fig)
		corrupt, torn, done = corrupt+c, torn+w, done+k
		// About every second one of these loses something, so as many as there are
		// cuts are enough for the smallest size.
		for range k {
			if acked, lost := control(t, chance); acked > 0 && lost > 0 {
				bites++
				lostNormal += lost
			}
		}
		if t.Failed() {
			break
		}
	}
	drill.Line("powerloss cuts=%d unsynced_writes=%d FULL: %s corrupt=%d | NORMAL (control): lost=%d in %d of %d cuts seed=%d",
		done, torn, &all, corrupt, lostNormal, bites, done, seed)
	if bites == 0 || torn == 0 {
		t.Error("nothing was lost with NORMAL, or no write was ever unsynced: this proves nothing")
	}
	if all.Dead > 0 {
		t.Errorf("%d messages are dead", all.Dead)
	}
}
