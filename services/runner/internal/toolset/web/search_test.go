package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// The pages below have the form of those that the providers sent in 2026.

func duckDuckGoPage(n int) string {
	var b strings.Builder
	b.WriteString(`<!DOCTYPE html><html><head><title>go at DuckDuckGo</title></head><body><div id="links" class="results">
<div class="result results_links results_links_deep result--ad"><div class="links_main"><h2 class="result__title"><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">Buy now</a></h2>
<a class="result__snippet" href="https://duckduckgo.com/y.js">An advertisement</a></div></div>`)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `<div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%%3A%%2F%%2Fexample.org%%2F%d%%3Fa%%3Db%%26c&amp;rut=0f3">Result &amp; <b>number</b> %d</a></h2>
<div class="result__extras"><a class="result__url" href="//duckduckgo.com/l/?uddg=x">example.org/%d</a></div>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">The <b>text</b>
 of %d</a></div></div>`, i, i, i, i)
	}
	b.WriteString(`<div class="nav-link"><form><input type="submit" value="Next"></form></div></div></body></html>`)
	return b.String()
}

func bravePage(n int) string {
	var results []string
	for i := 1; i <= n; i++ {
		results = append(results, fmt.Sprintf(`{"title":"Result &amp; <strong>number</strong> %d","url":"https://example.org/%d?a=b&c","is_source_local":false,"description":"The <strong>text</strong> of %d","meta_url":{"hostname":"example.org"}}`, i, i, i))
	}
	return `{"type":"search","query":{"original":"go","more_results_available":true},"web":{"type":"search","results":[` + strings.Join(results, ",") + `],"family_friendly":true}}`
}

func searxngPage(n int) string {
	var results []string
	for i := 1; i <= n; i++ {
		results = append(results, fmt.Sprintf(`{"url":"https://example.org/%d?a=b&c","title":"Result & number %d","content":"The text of %d","engine":"startpage","score":1.0,"category":"general","thumbnail":null}`, i, i, i))
	}
	return `{"query":"go","number_of_results":0,"results":[` + strings.Join(results, ",") + `],"answers":[],"suggestions":[],"unresponsive_engines":[["x","timeout"]]}`
}

// TestSearch is S3-46: five results of each provider, or as many as the call or the settings
// say, from a server whose address is configured.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		provider, key, kind string
		page                func(int) string
		path, query         string
	}{
		{"duckduckgo", "", "text/html; charset=UTF-8", duckDuckGoPage, "/", "q=go+%26+%C3%BC"},
		{"brave", "k-1", "application/json", bravePage, "/", "count=%d&q=go+%%26+%%C3%%BC"},
		{"searxng", "", "application/json", searxngPage, "/search", "format=json&q=go+%26+%C3%BC"},
	} {
		var request *http.Request
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			request = r
			respond(c.kind, c.page(30))(w, r)
		})
		for _, n := range []struct{ setting, argument, want int }{{0, 0, 5}, {0, 20, 20}, {3, 0, 3}, {3, 7, 7}} {
			o := options()
			o.Search = Search{Provider: c.provider, URL: url + "/", Key: "env:KEY", Results: n.setting}
			o.Secrets.Getenv = func(string) string { return c.key }
			arguments := map[string]any{"query": " go &\n ü "}
			if n.argument > 0 {
				arguments["max_results"] = n.argument
			}
			var got hits
			run(t, tool(t, "web_search", o), arguments, &got)
			if len(got.Results) != n.want || got.Provider != c.provider || got.Query != "go & ü" {
				t.Fatalf("%s: %+v", c.provider, got)
			}
			for i, f := range got.Results {
				if want := (found{fmt.Sprintf("Result & number %d", i+1), fmt.Sprintf("https://example.org/%d?a=b&c", i+1), fmt.Sprintf("The text of %d", i+1)}); f != want {
					t.Errorf("%s: %+v, want %+v", c.provider, f, want)
				}
			}
			query := c.query
			if c.provider == "brave" {
				query = fmt.Sprintf(c.query, n.want)
			}
			if request.URL.Path != c.path || request.URL.RawQuery != query || request.Header.Get("X-Subscription-Token") != c.key {
				t.Errorf("%s: %s %q", c.provider, request.URL, request.Header)
			}
		}
	}
}

// TestProvider: which provider is asked, where the settings name none; settings that cannot
// work are reported to the model.
func TestProvider(t *testing.T) {
	for _, c := range []struct {
		search    Search
		name, url string // no name: refused
	}{
		{Search{}, "duckduckgo", "https://html.duckduckgo.com/html/"},
		{Search{Provider: "auto"}, "duckduckgo", "https://html.duckduckgo.com/html/"},
		{Search{URL: "http://sx.test"}, "searxng", "http://sx.test/search"},
		{Search{Key: "k"}, "brave", "https://api.search.brave.com/res/v1/web/search"},
		{Search{Key: "k", URL: "http://sx.test"}, "brave", "https://api.search.brave.com/res/v1/web/search"},
		{Search{Provider: "searxng", Key: "k", URL: "http://sx.test/x/"}, "searxng", "http://sx.test/x/search"},
		{Search{Provider: "duckduckgo", Key: "k", URL: "http://d.test/"}, "duckduckgo", "http://d.test/"},
		{Search{Provider: "brave", Key: "k", URL: "http://b.test/"}, "brave", "http://b.test/"},
		{Search{Provider: "brave"}, "", ""},
		{Search{Provider: "searxng"}, "", ""},
		{Search{Provider: "searxng", URL: "sx.test"}, "", ""},
		{Search{Provider: "google"}, "", ""},
	} {
		p, err := c.search.provider(c.search.Key)
		if (err == nil) != (c.name != "") || err == nil && (p.name != c.name || p.url != c.url) {
			t.Errorf("%+v: %s %s %v", c.search, p.name, p.url, err)
		}
		if err == nil {
			continue
		}
		o := options()
		o.Search = c.search
		if r := run(t, tool(t, "web_search", o), map[string]string{"query": "x"}, nil); !strings.Contains(r.Text, err.Error()) {
			t.Errorf("%+v: %+v", c.search, r)
		}
	}
}

// S3-46: the settings of a turn choose the provider, its address, its key and the number of results.
func TestSearchSettings(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Subscription-Token") != "k-2" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		respond("application/json", bravePage(30))(w, r)
	})
	o := options()
	o.Secrets.Getenv = func(name string) string { return map[string]string{"BRAVE_2": "k-2"}[name] }
	for _, c := range []struct {
		set  *registrypb.WebSearch
		want int // results; -1: it fails
	}{
		{&registrypb.WebSearch{Provider: "brave", Url: url, Key: "env:BRAVE_2", Results: 7}, 7},
		{&registrypb.WebSearch{Provider: "brave", Url: url, Key: "env:BRAVE_3", Results: 7}, -1},
	} {
		r := tool(t, "web_search", o).Run(t.Context(), toolset.Call{
			Name: "web_search", Args: json.RawMessage(`{"query":"x"}`), Place: toolset.Place{Config: &registrypb.TurnConfig{WebSearch: c.set}},
		})
		var got hits
		if err := json.Unmarshal(r.JSON, &got); c.want >= 0 && (err != nil || len(got.Results) != c.want) || c.want < 0 && (!r.IsError || !strings.Contains(r.Text, "tools.web_search.key")) {
			t.Errorf("%v: %s%s", c.set, r.Text, r.JSON)
		}
	}
}

// TestSearchFails: what a provider may answer instead of results, and what the model reads.
func TestSearchFails(t *testing.T) {
	const key = "k-canary"
	for _, c := range []struct {
		provider   string
		code       int
		kind, body string
		want       string // empty: no results, and no error
	}{
		{"brave", 401, "application/json", `{}`, "refuses the search with status 401"},
		{"brave", 200, "application/json", `{"web":7}`, "sent a page that is not understood"},
		{"brave", 200, "application/json", `{"query":{}}`, ""},
		{"searxng", 403, "text/html", `Forbidden`, "refuses the search with status 403"},
		{"searxng", 200, "text/html", `<html>`, "sent a page that is not understood"},
		{"searxng", 200, "application/json", `{"results":[]}`, ""},
		{"searxng", 200, "application/json", `{"results":[{"url":"javascript:alert(1)"},{"url":""},{"url":"file:///etc/passwd"}]}`, ""},
		{"searxng", 302, "text/html", ``, "answered with status 302"},
		{"duckduckgo", 202, "text/html", `<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>`, "answered with status 202"},
		{"duckduckgo", 200, "text/html", `<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>`, "a proof that a person searches"},
		{"duckduckgo", 200, "text/html", `<div id="links"><div class="no-results">No results.</div></div>`, ""},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(c.code)
			fmt.Fprint(w, c.body)
		})
		o := options()
		o.Search, o.Secrets = Search{Provider: c.provider, URL: url, Key: "env:KEY"}, secret.Source{Getenv: func(string) string { return key }}
		r := run(t, tool(t, "web_search", o), map[string]string{"query": "x"}, nil)
		var got struct{ Results json.RawMessage }
		if c.want == "" {
			if err := json.Unmarshal(r.JSON, &got); err != nil || string(got.Results) != "[]" {
				t.Errorf("%s %d %s: %s, %s", c.provider, c.code, c.body, r.JSON, r.Text)
			}
		} else if !r.IsError || !strings.Contains(r.Text, c.want) || strings.Contains(r.Text, key) {
			t.Errorf("%s %d %s: %s", c.provider, c.code, c.body, r.Text)
		}
	}
}
