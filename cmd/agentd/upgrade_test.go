package main

import (
	"archive/tar"
	"compress/gzip"
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// unpack lays out a home as an earlier build left it.
func unpack(t *testing.T, archive, home string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !filepath.IsLocal(h.Name) {
			t.Fatal(h, err)
		}
		path := filepath.Join(home, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// checked stops the services and finds the home sound.
func checked(t *testing.T, home string, p *world.Process) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Errorf("exit %d: %s", code, p.Log())
	}
	found, stats, err := invariant.Check(t.Context(), layout.At(home), invariant.Options{Drained: true})
	if err != nil || stats.Databases < 2 {
		t.Fatal(stats, err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// Upgrading is replacing the programs: a home as each earlier format left it opens,
// works on and is sound. When the format rises, a home of the one before is added
// here (testdata/home-formatN.tar.gz: an agent a1 with two answered messages of
// peer bob, and a third that waits because the agent is stopped), and none is ever taken away.
func TestHomesOfEarlierFormats(t *testing.T) {
	archives, err := filepath.Glob("testdata/home-format*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			site := world.NewSite(t, program(t))
			unpack(t, archive, site.Home)
			p := site.Start(t, append([]string{"all"}, flags...)...)
			site.Serving(t, p, everything...)
			if _, err := site.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
				t.Fatal(err)
			}
			for id := int64(1); id <= 3; id++ { // the third was pushed and not answered
				if turn := site.Await(t, "a1", id); turn.GetFate() != registryv1.Fate_FATE_REPLIED || len(turn.GetSteps()) == 0 {
					t.Errorf("message %d: %v", id, turn)
				}
			}
			turn := site.Say(t, "a1", world.Peer("bob"), "say: after the upgrade")
			replied(t, site, turn, "after the upgrade")
			if turn.GetInboxId() != 4 || len(site.Events(t, "a1", turn.GetThreadId(), "")) < 4 {
				t.Errorf("it is not the conversation of before: %v", turn)
			}
			checked(t, site.Home, p)
		})
	}
}

// An older build refuses what a newer one wrote, and says so: the registry a home,
// an agent a conversation. Nothing of it is changed.
func TestNewerFormatsAreRefused(t *testing.T) {
	site := world.NewSite(t, program(t))
	unpack(t, "testdata/home-format1.tar.gz", site.Home)
	set := func(path, statement string) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+filepath.Join(site.Home, path))
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(t.Context(), statement)
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	set("registry.db", "PRAGMA user_version = 99")
	p := site.Start(t, "all")
	if code := p.Exit(); code != 1 || !strings.Contains(p.Log(), "has format 99, this build knows 5") || !strings.Contains(p.Log(), "use that version") {
		t.Errorf("exit %d: %s", code, p.Log())
	}
	set("registry.db", "PRAGMA user_version = 0") // as written before there was one
	set("agents/a1/inbox/events.db", "UPDATE x_meta SET format = 99")
	p = site.Start(t, append([]string{"all"}, flags...)...)
	site.Serving(t, p, everything...)
	site.Create(t, "a2", "")
	replied(t, site, site.Say(t, "a2", world.Peer("bob"), "say: the others go on"), "the others go on")
	_, err := site.Push(t.Context(), "a1", world.Peer("bob"), "hello", "k")
	if err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("push: %v", err)
	}
	p.Signal(syscall.SIGTERM)
	p.Exit()
}

func replied(t *testing.T, site *world.Site, turn *registryv1.Turn, want string) {
	t.Helper()
	if got := site.Reply(t, turn); turn.GetFate() != registryv1.Fate_FATE_REPLIED || !strings.Contains(got, want) {
		t.Fatalf("%v, %q; want a reply with %q", turn, got, want)
	}
}
