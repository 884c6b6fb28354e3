package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// S4-93: a secret reaches its hosts, and neither the model nor another host by a redirect; what a server
// sends back of it is taken out. Every other use of one requests nothing.
func TestSecrets(t *testing.T) {
	const value = "v4lue/of+the shop"
	var got []string
	seen := func(r *http.Request) {
		got = append(got, r.Host+" "+r.Header.Get("Authorization")+r.Header.Get("X-Key"))
	}
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		fmt.Fprint(w, "other")
	})
	var shop string
	shop = serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other, http.StatusFound)
		case "/stay":
			http.Redirect(w, r, shop+"/", http.StatusFound)
		default:
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			fmt.Fprintf(w, "echo %s %s", r.Header.Get("Authorization"), base64.StdEncoding.EncodeToString([]byte(bearer)))
		}
	})
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known := []*registrypb.Secret{
		{Name: "SHOP", Ref: "env:SHOP_TOKEN", Hosts: []string{"api.shop.example", host(shop)}},
		{Name: "FILE", Ref: "file:" + file, Hosts: []string{host(shop)}},
		{Name: "GONE", Ref: "env:MISSING", Hosts: []string{host(shop)}},
		{Name: "LINES", Ref: "env:LINES", Hosts: []string{host(shop)}},
		{Name: "ODD", Ref: "env:SHOP_TOKEN", Hosts: []string{"https://shop"}},
	}
	var kept []string
	o := options()
	o.Secrets = secret.Source{
		Getenv: func(name string) string { return map[string]string{"SHOP_TOKEN": value, "LINES": "a\nb"}[name] },
		Read:   func(v ...string) { kept = append(kept, v...) },
	}
	request := func(url string, headers map[string]string, known []*registrypb.Secret) toolset.Result {
		t.Helper()
		args, err := json.Marshal(map[string]any{"url": url, "headers": headers})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		r := tool(t, "http_request", o).Run(t.Context(), toolset.Call{Key: "k", Name: "http_request", Args: args, Place: toolset.Place{Config: &registrypb.TurnConfig{Secrets: known}}})
		if all := r.Text + string(r.JSON); strings.Contains(all, value) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte(value))) {
			t.Errorf("the result has the value: %s", all)
		}
		return r
	}
	authorized := map[string]string{"Authorization": "Bearer {{secret:SHOP}}"}
	for _, c := range []struct {
		name, path string
		headers    map[string]string
		servers    []string
		answer     string
	}{
		{"its host", "/", authorized, []string{host(shop) + " Bearer " + value}, "echo Bearer {{secret:SHOP}} {{secret:SHOP}}"},
		{"its host by a redirect", "/stay", authorized, []string{host(shop) + " Bearer " + value, host(shop) + " Bearer " + value}, "echo Bearer {{secret:SHOP}}"},
		{"another host by a redirect", "/away", authorized, []string{host(shop) + " Bearer " + value, host(other) + " "}, "other"},
		{"of a file", "/", map[string]string{"X-Key": "{{ secret:FILE }}"}, []string{host(shop) + " of a file"}, "echo"},
	} {
		r := request(shop+c.path, c.headers, known)
		if r.IsError || strings.Join(got, ", ") != strings.Join(c.servers, ", ") || !strings.Contains(string(r.JSON), c.answer) {
			t.Errorf("%s: the servers saw %q, the model %s%s", c.name, got, r.Text, r.JSON)
		}
	}
	if len(kept) != 4 || kept[0] != value || kept[3] != "of a file" {
		t.Errorf("kept out of logs: %q", kept)
	}
	for _, c := range []struct {
		name, url string
		headers   map[string]string
		known     []*registrypb.Secret
		want      string
	}{
		{"another host", other, authorized, known, "the secret SHOP may not be sent to " + host(other) + ". Its hosts are api.shop.example, " + host(shop)},
		{"another port", "https://api.shop.example:8443/", authorized, known, "may not be sent to api.shop.example:8443"},
		{"without TLS", "http://api.shop.example/", authorized, known, "by https only"},
		{"an unknown name", shop, map[string]string{"Authorization": "{{secret:OTHER}}"}, known, "there is no secret OTHER. There are SHOP, FILE, GONE, LINES, ODD"},
		{"no secrets", shop, authorized, nil, "has no secrets"},
		{"a missing variable", shop, map[string]string{"X-Key": "{{secret:GONE}}"}, known, "cannot be read from env:MISSING"},
		{"two lines", shop, map[string]string{"X-Key": "{{secret:LINES}}"}, known, "cannot be read from env:LINES"},
		{"hosts that are not understood", shop, map[string]string{"X-Key": "{{secret:ODD}}"}, known, "hosts of the secret ODD are not understood"},
		{"a header that redirects carry", shop, map[string]string{"Accept": "{{secret:SHOP}}"}, known, "the header Accept goes to every server"},
	} {
		r := request(c.url, c.headers, c.known)
		if !r.IsError || !strings.HasPrefix(r.Text, "Nothing was requested: ") || !strings.Contains(r.Text, c.want) || got != nil {
			t.Errorf("%s: %+v, the servers saw %q", c.name, r, got)
		}
	}
}
