package shell_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/need"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// S4-93: a command reaches the hosts that the settings name and no others, and reads why. Without a list it
// reaches none, and with the open network all of them.
func TestHosts(t *testing.T) {
	need.Namespaces(t, "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc")
	s, err := sandbox.New(t.Context(), sandbox.Options{ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") }))
	defer site.Close()
	url := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	host := strings.TrimPrefix(url, "http://")
	program := fmt.Sprintf(`unset NO_PROXY; python3 - <<'END'
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen("%s/", timeout=20).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode().strip())
except urllib.error.URLError as e:
    print("no network")
END`, url)
	for name, c := range map[string]struct {
		hosts   []string
		private []string
		open    bool
		want    string
	}{
		"its host":        {[]string{"git.example.org", host}, []string{"127.0.0.0/8", "::1/128"}, false, "the page"},
		"another host":    {[]string{"git.example.org"}, []string{"127.0.0.0/8", "::1/128"}, false, "403 host not allowed: " + host + " (sandbox.network)"},
		"a private one":   {[]string{host}, nil, false, "is not public"},
		"off":             {nil, []string{"127.0.0.0/8"}, false, "no network"},
		"open":            {nil, nil, true, "the page"},
		"open with hosts": {[]string{"git.example.org"}, nil, true, "the page"},
	} {
		place := at(t)
		place.Config.NetworkHosts, place.Config.SandboxNetwork = c.hosts, c.open
		place.Config.Http = &registrypb.WebLimits{AllowPrivate: c.private}
		arguments, err := json.Marshal(map[string]string{"command": program})
		if err != nil {
			t.Fatal(err)
		}
		var r toolset.Output
		got := run(t.Context(), t, s, place, string(arguments))
		if err := json.Unmarshal([]byte(got), &r); err != nil || !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
}

// S3-58, S4-93: a program of the home has hosts of its own, and reads the setting that has them.
func TestHostsOfProgram(t *testing.T) {
	need.Namespaces(t, "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--mount-proc")
	s, err := sandbox.New(t.Context(), sandbox.Options{ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	place, p := at(t), printer()
	p.Argv, p.NetworkHosts = []string{"curl", "-sS", "http://{word}/"}, []string{"git.example.org"}
	r := programOf(place.Config, s, p).Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: p.GetName(), Args: json.RawMessage(`{"word":"example.com"}`), Place: place})
	if want := "host not allowed: example.com (tools.programs.print_word.network)"; !strings.Contains(string(r.JSON)+r.Text, want) {
		t.Errorf("%s%s", r.Text, r.JSON)
	}
}

// A list that a newer registry wrote, and we do not understand, runs nothing.
func TestHostsAreUnderstood(t *testing.T) {
	place, b := at(t), &box{}
	place.Config.NetworkHosts = []string{"https://example.org"}
	if got := run(t.Context(), t, b, place, `{"command":"ls"}`); b.got != nil || !strings.Contains(got, "is no host") {
		t.Errorf("%s, ran %v", got, b.got)
	}
}
