package web

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// TestRequest is S3-54: the methods, headers and body reach the server, and status, headers
// and body of its response the model.
func TestRequest(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Made", "1")
		w.Header().Add("X-Many", "a")
		w.Header().Add("X-Many", "b")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), body)
	})
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"} {
		arguments := map[string]any{"url": url + "/v1?x=y", "method": method, "headers": map[string]string{"authorization": "Bearer t", "Content-Type": "text/csv"}}
		want := method + " /v1?x=y Bearer t text/csv "
		if method != "GET" && method != "HEAD" {
			arguments["body"] = "ü,1"
			want += "ü,1"
		}
		if method == "HEAD" {
			want = ""
		}
		var got answered
		run(t, tool(t, "http_request", options()), arguments, &got)
		if got.Status != 201 || got.Body != want || got.Headers["X-Made"] != "1" || got.Headers["X-Many"] != "a, b" || got.FinalURL != url+"/v1?x=y" {
			t.Errorf("%s: %+v", method, got)
		}
	}
}

// TestRequestLength is S3-54: 50,000 characters of a body, or what the settings say.
func TestRequestLength(t *testing.T) {
	url := serve(t, respond("application/json", `"`+strings.Repeat("ü", 60_000)+`"`))
	for setting, want := range map[int]int{0: 50_000, 70_000: 60_002, 10: 10} {
		o := options()
		o.HTTP.MaxChars = setting
		var got answered
		run(t, with{tool(t, "http_request", o), &registrypb.TurnConfig{ToolLimits: &registrypb.ToolLimits{ResultChars: 200_000}}}, map[string]string{"url": url}, &got)
		body, note, was := strings.Cut(got.Body, "\n")
		if utf8.RuneCountInString(body) != want || was != (want < 60_002) || was && note != toolset.LeftOut(60_002-want, "") {
			t.Errorf("setting %d: %d characters, %q", setting, utf8.RuneCountInString(body), note)
		}
	}
}

// S1-51: where the settings allow fewer characters for any result, they decide, and the beginning and the end stay. A
// result of which the headers are large is bounded with them.
func TestRequestResultChars(t *testing.T) {
	text := strings.Repeat("a", 40_000) + strings.Repeat("z", 30_000)
	url := serve(t, respond("text/plain", text))
	for chars, limit := range map[int32]int{0: toolset.MaxText, 2000: 2000, 200_000: 50_000} {
		workdir := t.TempDir()
		var got answered
		r := run(t, with{tool(t, "http_request", options()), &registrypb.TurnConfig{Workdir: workdir, ToolLimits: &registrypb.ToolLimits{ResultChars: chars}}}, map[string]string{"url": url}, &got)
		want := text[:limit*6/10] + "\n" + toolset.LeftOut(len(text)-limit, got.File) + "\n" + text[len(text)-limit*4/10:]
		if limit == 50_000 { // the limit of the tool itself
			want = text[:limit] + "\n" + toolset.LeftOut(len(text)-limit, got.File)
		}
		if got.Body != want || !r.Bounded || !strings.HasPrefix(got.File, ".output/http_request-") {
			t.Errorf("%d: %d characters, file %q, bounded %v", chars, len(got.Body), got.File, r.Bounded)
		}
		if b, err := os.ReadFile(filepath.Join(workdir, got.File)); err != nil || !strings.Contains(string(b), text) {
			t.Errorf("%d: %d bytes are kept, %v", chars, len(b), err)
		}
	}
	large := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("h", 40_000))
		respond("text/plain", "x")(w, r)
	})
	if r := run(t, tool(t, "http_request", options()), map[string]string{"url": large}, &answered{}); r.Bounded {
		t.Error("a result with 40,000 characters of headers is not shortened")
	}
}
