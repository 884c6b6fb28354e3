package egress

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func hosts(t *testing.T, list ...string) Hosts {
	t.Helper()
	h, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPermits(t *testing.T) {
	h := hosts(t, "git.example.org", "*.Example.net", "api.example.com:8443", "*.deep.example.com:81", "93.184.216.34")
	for at, want := range map[string]bool{
		"git.example.org:443": true, "git.example.org:80": true, "GIT.Example.ORG.:443": true, "a.example.net:443": true, "a.b.example.net:80": true,
		"api.example.com:8443": true, "x.deep.example.com:81": true, "93.184.216.34:443": true,
		"git.example.org:22": false, "agit.example.org:443": false, "git.example.org.evil.test:443": false, "x.git.example.org:443": false,
		"example.net:443": false, "badexample.net:443": false, "api.example.com:443": false, "x.deep.example.com:80": false, "93.184.216.35:443": false,
		"[::1]:443": false, "127.0.0.1:80": false, "example.org:443": false,
	} {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscan(port, &n); err != nil {
			t.Fatal(err)
		}
		if h.Permits(host, n) != want {
			t.Errorf("%s: %v", at, !want)
		}
	}
	if (Hosts{}).Permits("example.org", 443) {
		t.Error("no list permits something")
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "*", "*.", "a b", "https://example.org", "example.org/path", "user@example.org", "-a.org", "a..b", "a:0", "a:65536", "a:x", "exa\nmple.org", strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 200) + "org", "é.org", "*.*.org", "[::1"} {
		if h, err := Parse([]string{"example.org", text}); err == nil {
			t.Errorf("%q: %+v", text, h)
		} else if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Parse(make([]string, MaxHosts+1)); err == nil {
		t.Error("a list without end is accepted")
	}
}
