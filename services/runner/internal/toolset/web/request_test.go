package web

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
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
		run(t, tool(t, "http_request", o), map[string]string{"url": url}, &got)
		body, note, was := strings.Cut(got.Body, "\n")
		if utf8.RuneCountInString(body) != want || was != (want < 60_002) || was && note != fmt.Sprintf("[… %d characters left out]", 60_002-want) {
			t.Errorf("setting %d: %d characters, %q", setting, utf8.RuneCountInString(body), note)
		}
	}
}
