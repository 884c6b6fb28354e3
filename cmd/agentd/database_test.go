package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// More than one database is refused before any server is asked, and the refusal says what
// to do; no password is in it.
func TestSeveralDatabasesAreRefused(t *testing.T) {
	const settings = "storage:\n  engine: postgres\n  dsns: ['env:DSN_1', 'postgres://claw@127.0.0.1:1/two']\n"
	for name, c := range map[string]struct {
		settings string
		flags    []string
	}{
		"settings": {settings, nil},
		"flags":    {"", []string{"--dsn", "env:DSN_1", "--dsn", "postgres://claw@127.0.0.1:1/two"}},
	} {
		t.Run(name, func(t *testing.T) {
			site := world.NewSite(t, program(t))
			if err := os.MkdirAll(site.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(c.settings), 0o600); err != nil {
				t.Fatal(err)
			}
			p := site.StartWith(t, []string{"DSN_1=postgres://claw:secret@127.0.0.1:1/one"}, append([]string{"registry"}, c.flags...)...)
			code := p.Exit()
			for _, want := range []string{"Error: 2 databases are given, and an installation has one - ", "agentctl migrate-store ID... --to-shard 1 --dsn URL1 --dsn URL2 --apply", "docs/operations.md"} {
				if !strings.Contains(p.Log(), want) {
					t.Errorf("want %q: %s", want, p.Log())
				}
			}
			if code != 1 || strings.Contains(p.Log(), "secret") {
				t.Errorf("exit %d: %s", code, p.Log())
			}
		})
	}
}
