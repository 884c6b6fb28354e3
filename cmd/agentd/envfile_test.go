package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// S2-05, S2-06: a profile has a home of its own, whose .env gives what the environment does not.
func TestProfileWithEnvFile(t *testing.T) {
	const providers = "providers:\n  one: {base_url: 'http://127.0.0.1:9/v1', api_key: 'env:FILE_KEY', models: [m1]}\n"
	const missing = "the environment variable FILE_KEY is not set"
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		exit       int
		log, not   string
	}{
		{"with the key", "FILE_KEY=x\n", 0o600, 0, "msg=serving", missing},
		{"without the key", "OTHER_KEY=x\n", 0o600, 0, missing, ""},
		{"others can read it", "FILE_KEY=secret\n", 0o644, 1, "others can read it (mode 0644) - run: chmod 600", "secret"},
		{"no assignment", "FILE_KEY=secret\nFILE_KEY secret\n", 0o600, 1, "line 2: this is no assignment", "secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			site := world.NewSite(t, program(t))
			base := site.Home
			site.Home += "-dev"
			if err := os.MkdirAll(site.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"providers.yaml": providers, ".env": c.text} {
				path := filepath.Join(site.Home, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			p := site.StartWith(t, []string{"THECLAW_HOME=" + base}, "all", "--profile", "dev")
			if c.exit == 0 {
				site.Serving(t, p, everything...)
				p.Signal(syscall.SIGTERM)
			}
			if code := p.Exit(); code != c.exit || !strings.Contains(p.Log(), c.log) || c.not != "" && strings.Contains(p.Log(), c.not) {
				t.Errorf("exit %d, want %d with %q and without %q:\n%s", code, c.exit, c.log, c.not, p.Log())
			}
		})
	}
}
