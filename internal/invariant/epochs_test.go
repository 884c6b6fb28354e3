package invariant_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/database"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// I24: the services keep it over resets, changes and an archived session, in both stores, and
// the check has looked at the epochs that they began.
func TestEpochsOfTheServices(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testEpochs(t, "") })
	t.Run("postgres", func(t *testing.T) { testEpochs(t, pgtest.Database(t)) })
}

func testEpochs(t *testing.T, dsn string) {
	dir := filepath.Join(t.TempDir(), "h")
	w := world.Start(t, world.Options{Home: dir, DSN: dsn, TTL: time.Minute})
	w.Create(t, "a1", "outbound: []")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Say(t, "a1", peer("bob"), "one")
	title := "about cats"
	must(w.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{Key: bobKey, Title: &title}))
	must(w.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{Key: bobKey}))
	w.Say(t, "a1", peer("bob"), "two")
	must(w.Sessions.ArchiveSession(t.Context(), &registryv1.ArchiveSessionRequest{Key: bobKey}))
	w.Say(t, "a1", peer("bob"), "three")
	w.Say(t, "a1", peer("alice"), "one")
	must(w.Sessions.ArchiveSession(t.Context(), &registryv1.ArchiveSessionRequest{Key: aliceKey}))
	w.Stop()

	found, stats, err := invariant.Check(t.Context(), layout.At(dir), invariant.Options{DSN: dsn, Live: dsn != ""})
	if err != nil || stats.Turns != 4 {
		t.Fatal(stats, err)
	}
	for _, f := range found {
		t.Error(f)
	}
	var home *snapshot.Home
	if dsn == "" {
		home, err = snapshot.Read(t.Context(), layout.At(dir), snapshot.Options{})
	} else {
		home, err = database.Read(t.Context(), dsn, snapshot.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	a := home.Agents[0]
	for _, d := range a.Threads {
		want := map[string]snapshot.Session{
			"threads/peers/tg-bob":   {Key: bobKey, Title: title},
			"threads/peers/tg-alice": {Key: aliceKey, Archived: true},
		}[d.Thread]
		epochs := d.OwnEpochs()
		if d.Session == nil || d.Session.Key != want.Key || d.Session.Title != want.Title || d.Session.Archived != want.Archived {
			t.Errorf("%s has the session %+v, want %+v", d.Thread, d.Session, want)
		}
		if n := map[string]int{bobKey: 2}[want.Key]; len(epochs) != n {
			t.Errorf("%s has the epochs %v, want %d", d.Thread, epochs, n)
		}
	}
	if len(a.Threads) != 2 || dsn == "" && len(a.Inbox.Listed) != 2 {
		t.Errorf("%d conversations and %d in the list", len(a.Threads), len(a.Inbox.Listed))
	}
}
