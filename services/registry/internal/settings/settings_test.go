package settings_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/services/registry/internal/settings"
	"github.com/theclaw/agents/services/registry/internal/standalone"
)

// F20: a changed file that is refused is in the log once for each content, also when two are refused for the same reason.
func TestRefusedSettingsAreLogged(t *testing.T) {
	h, err := agentdir.OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.HomeSettings(); err != nil { // in force: a home without a file
		t.Fatal(err)
	}
	var out bytes.Buffer
	s, log := settings.New(standalone.NewFiles(h), nil, nil, nil, nil), slog.New(slog.NewTextHandler(&out, nil))
	for _, c := range []struct {
		text string
		want int // lines in all
	}{
		{"run: {timeout: 5m}\n", 0},
		{"run: {timeout: 5m}\nnope: 1\n", 1},
		{"run: {timeout: 6m}\nnope: 1\n", 2},
		{"run: {timeout: 6m}\n", 2},
		{"run: {timeout: 5m}\nnope: 1\n", 3},
	} {
		if err := os.WriteFile(h.DefaultsFile(), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.LogRefused(t.Context(), log)
		}
		if got := strings.Count(out.String(), "\n"); got != c.want || strings.Count(out.String(), "theclaw.yaml:2:1: unknown key") != c.want {
			t.Errorf("%q: %d lines, want %d\n%s", c.text, got, c.want, out.String())
		}
	}
}
