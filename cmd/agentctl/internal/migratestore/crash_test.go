package migratestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

const dieAt = "MIGRATESTORE_TEST_DIE_AT"

// TestMain lets the test binary be the command, which is killed where it is told.
func TestMain(m *testing.M) {
	at := os.Getenv(dieAt)
	if at == "" {
		os.Exit(m.Run())
	}
	fault.SetPoint(func(label string) {
		if label == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	e := command.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv, "test")
	e.Flags.Home, e.Flags.JSON = os.Args[1], true
	c := Command(e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(os.Args[2:])
	code := e.Report(c.ExecuteContext(context.Background()))
	os.Exit(max(code, fault.ExitCode(e.Close())))
}

// A kill -9 of the process in the middle of a move, wherever it is, then the
// same command again: the agent is there whole, with the same hashes, there and back.
func TestKilledMoves(t *testing.T) {
	at := filepath.Join(t.TempDir(), "home")
	home, err := agentdir.OpenHome(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	if _, err := home.Create("alice", agentdir.Spec{Prepare: func(dir string) error {
		_, err := db.Create(filepath.Join(dir, "inbox"))
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "workdir", "note"), []byte("n"), 0o600))
	}}); err != nil {
		t.Fatal(err)
	}
	e := sqlite.New(sqlite.Options{
		Live: func(string, uint64) error { return nil },
		Path: func(r store.Ref) (string, error) { return filepath.Join(home.AgentDir(r.Agent), r.Thread), nil },
	})
	for i := range 50 {
		if _, err := e.Append(t.Context(), store.Inbox("alice"), []store.NewEvent{{Source: "external:c:m:dm:bob:bob", Type: "message", Content: fmt.Sprint("message ", i)}}, store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	dsn := pgtest.Database(t)
	child := func(die, to string) (outcome, error) {
		t.Helper()
		c := exec.CommandContext(t.Context(), os.Args[0], at, "alice", "--to", to, "--dsn", dsn, "--apply")
		c.Env = append(os.Environ(), dieAt+"="+die)
		out, err := c.Output()
		var said struct{ Agents []outcome }
		if err == nil {
			err = json.Unmarshal(out, &said)
		}
		if err != nil || len(said.Agents) != 1 {
			return outcome{}, fmt.Errorf("%s: %w", out, err)
		}
		return said.Agents[0], nil
	}
	digest := ""
	for _, way := range []struct{ to, last string }{{toDatabase, "transfer:before-put-away"}, {toHome, "transfer:before-remove"}, {toDatabase, "transfer:before-put-away"}} {
		for _, die := range []string{"transfer:copied", way.last, "transfer:copied"} {
			_, err := child(die, way.to)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("to %s: not killed at %s: %v", way.to, die, err)
			}
		}
		o, err := child("nowhere", way.to)
		if err != nil || !o.Moved || o.Events != 50 || o.Workdir != 1 {
			t.Fatalf("to %s: %+v, %v", way.to, o, err)
		}
		if digest != "" && o.Digest != digest {
			t.Errorf("to %s: %s, was %s", way.to, o.Digest, digest)
		}
		digest = o.Digest
		if left, err := filepath.Glob(filepath.Join(home.RunDir(), "transfer-*")); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	if ids, err := home.IDs(); err != nil || len(ids) != 0 {
		t.Errorf("in the home: %v, %v", ids, err)
	}
}
