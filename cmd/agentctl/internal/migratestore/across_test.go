package migratestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
)

// An agent goes from database to database and back, and the command is killed at every
// step. Before and after each kill the engine of a registry that was never told serves
// it from one place: it reads, takes a message, lists it once; and tokens rise.
func TestKilledMovesAcross(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	dsns := []string{c.Database(t), c.Database(t), c.Database(t)}
	e, err := postgres.New(t.Context(), postgres.Options{DSNs: dsns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	const id = "alice"
	home := shard.Index(id, len(dsns))
	list, table := agents.New(e.Shards()), leases.New(e.Shards(), nil)
	for _, a := range []string{id, "aa", "zz"} {
		if err := list.Create(t.Context(), a, map[string][]byte{"config.yaml": []byte("{}"), "SOUL.md": []byte("soul")}); err != nil {
			t.Fatal(err)
		}
	}
	said, token := 0, uint64(0)
	serves := func(when string) {
		t.Helper()
		for range 2 {
			if _, err := e.Append(t.Context(), store.Inbox(id), []store.NewEvent{{Source: "external:c:m:dm:bob:bob", Type: "message", Content: fmt.Sprint("message ", said)}}, store.AppendOptions{}); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			said++
		}
		if n, err := e.VerifyChain(t.Context(), store.Inbox(id)); err != nil || n != int64(said) {
			t.Fatalf("%s: %d events of %d, %v", when, n, said, err)
		}
		if data, _, err := list.Read(t.Context(), id, "SOUL.md"); err != nil || string(data) != "soul" {
			t.Fatalf("%s: %q, %v", when, data, err)
		}
		all, err := list.List(t.Context(), "", 10)
		var ids []string
		for _, a := range all {
			ids = append(ids, a.ID)
		}
		if want := []string{"aa", id, "zz"}; err != nil || !slices.Equal(ids, want) {
			t.Fatalf("%s: lists %v, %v", when, ids, err)
		}
		l, err := table.Acquire(t.Context(), lease.AcquireRequest{Resource: lease.AgentResource(id), Holder: "runner", RequestID: when, TTL: time.Minute})
		if err != nil || l.Token <= token {
			t.Fatalf("%s: token %d after %d, %v", when, l.Token, token, err)
		}
		token = l.Token
		if err := e.Seal(t.Context(), id, store.Fence{Resource: l.Resource, Token: l.Token}); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := table.Release(t.Context(), l.Resource, l.Token); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		places := 0
		for _, pool := range e.Shards().All() {
			var n int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM agent a WHERE agent_id = $1 AND NOT EXISTS (SELECT 1 FROM arriving r WHERE r.agent_id = a.agent_id)", id).Scan(&n); err != nil {
				t.Fatal(err)
			}
			places += n
		}
		if places != 1 {
			t.Fatalf("%s: in %d databases", when, places)
		}
	}
	child := func(die string, to int) (relocated, error) {
		c := exec.CommandContext(t.Context(), os.Args[0], t.TempDir(), id, fmt.Sprint("--to-shard=", to+1), "--apply")
		for _, dsn := range dsns {
			c.Args = append(c.Args, "--dsn", dsn)
		}
		c.Env = append(os.Environ(), dieAt+"="+die)
		out, err := c.Output()
		var o struct{ Agents []relocated }
		if err == nil {
			err = json.Unmarshal(out, &o)
		}
		if err != nil || len(o.Agents) != 1 {
			return relocated{}, fmt.Errorf("%s: %w", out, err)
		}
		return o.Agents[0], nil
	}
	serves("first")
	for lap, to := range []int{(home + 1) % 3, (home + 2) % 3, home, (home + 1) % 3, home} { // from home, between others, back
		for _, die := range []string{"relocate:copied", "relocate:before-commit", "relocate:committed", "relocate:opened", "relocate:led"} {
			_, err := child(die, to)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("to %d: not killed at %s: %v", to, die, err)
			}
			serves(fmt.Sprint("lap ", lap, " killed at ", die))
		}
		o, err := child("nowhere", to)
		if err != nil || !o.Moved || !o.Was {
			t.Fatalf("to %d: %+v, %v", to, o, err)
		}
		if o, err = child("nowhere", (to+1)%3); err != nil || !o.Moved || o.Was || o.Events != int64(said) {
			t.Fatalf("on from %d: %+v, %v", to, o, err)
		}
		serves(fmt.Sprint("lap ", lap, " on"))
		if o, err = child("nowhere", to); err != nil || !o.Moved || o.Was {
			t.Fatalf("back to %d: %+v, %v", to, o, err)
		}
		serves(fmt.Sprint("lap ", lap, " back"))
	}

	// One that works is refused, and so is a number that is none; a rehearsal changes nothing.
	args := []string{id, "--to-shard", fmt.Sprint((home+1)%3 + 1)}
	for _, dsn := range dsns {
		args = append(args, "--dsn", dsn)
	}
	if out, errs, code := run(t, t.TempDir(), args...); code != 0 || !strings.Contains(out, "nothing was changed") {
		t.Errorf("rehearsal: %d, %s%s", code, out, errs)
	}
	serves("after a rehearsal")
	if _, err := e.SetStarted(t.Context(), id, true, "h"); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := run(t, t.TempDir(), args...); code != 1 || !strings.Contains(errs, "agentctl stop alice") {
		t.Errorf("while it is started: %d, %s", code, errs)
	}
	if _, errs, code := run(t, t.TempDir(), id, "--to-shard", "4", "--dsn", dsns[0]); code != 2 {
		t.Errorf("to a database that is none: %d, %s", code, errs)
	}
	// Removed and made again it is where it was, and not a second time elsewhere.
	if _, err := e.SetStarted(t.Context(), id, false, "h"); err != nil {
		t.Fatal(err)
	}
	if _, err := child("nowhere", (home+1)%3); err != nil {
		t.Fatal(err)
	}
	stale, err := shard.Open(t.Context(), dsns)
	if err != nil {
		t.Fatal(err)
	}
	defer stale.Close()
	if err := list.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := list.Has(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed: %v", err)
	}
	if err := list.Create(t.Context(), id, map[string][]byte{"config.yaml": []byte("{}"), "SOUL.md": []byte("soul")}); err != nil {
		t.Fatal(err)
	}
	if err := agents.New(stale).Create(t.Context(), id, nil); !errors.Is(err, agents.ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	said = 0
	serves("made again")
	if _, errs, code := run(t, t.TempDir(), append([]string{"nobody"}, args[1:]...)...); code != 1 || !strings.Contains(errs, "is in none of the databases") {
		t.Errorf("nobody: %d, %s (%s)", code, errs, fault.AgentNotFound)
	}
}
