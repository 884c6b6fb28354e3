package standin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CONTRACTS 4.2: every recorded send but those of the broken plugins.
func TestXGWAsRecorded(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "xgw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := func() {
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(fixture(t, "xgw/00-config.yaml")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recording{
		dir: "testdata/xgw", paths: strings.NewReplacer("/srv/claw-a/home", home), env: env(t, home),
		stdin: map[string]string{"32-stub-send-stdin": " from stdin\n", "10-send-empty-stdin": ""},
		setup: map[string]func(){"03-send-agentv1-args": config},
	}.play(t)
	journal, err := os.ReadFile(filepath.Join(dir, "journal.ndjson"))
	if err != nil || strings.Count(string(journal), `"OK":true`) != 3 || strings.Count(string(journal), `"OK":false`) != 2 ||
		!strings.Contains(string(journal), `"Text":"from stdin"`) {
		t.Errorf("journal %v\n%s", err, journal)
	}
}

// CONTRACTS 4.2: the option that has another name from version 2 on.
func TestXGWVersions(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "xgw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config.yaml": fixture(t, "xgw/00-config.yaml"), "script.json": `{"version":"2.1.0"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := env(t, home)
	if help := must(t, e, "xgw", "send", "--help"); !strings.Contains(help, "--conversation ") || strings.Contains(help, "--session ") {
		t.Errorf("help %s", help)
	}
	if _, err := run(t, e, "xgw", "send", "--channel", "tui-main", "--peer", "-a", "--session", "s", "--message", "x"); exit(err) != 1 {
		t.Errorf("the old option: %v", err)
	}
	if out := must(t, e, "xgw", "send", "--channel", "tui-main", "--peer", "-a", "--conversation", "s", "--message", "x"); out != "Message sent: channel=tui-main peer=-a\n" {
		t.Errorf("%q", out)
	}
}
