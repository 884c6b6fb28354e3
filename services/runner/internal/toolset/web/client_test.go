package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server records when requests came, by a clock, and answers by a script of status codes;
// the last one repeats.
type server struct {
	url string
	mu  sync.Mutex
	at  []time.Duration
	key []string
}

func newServer(t *testing.T, c *clock, script ...int) *server {
	s := &server{}
	s.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		code := script[min(len(s.at), len(script)-1)]
		s.at, s.key = append(s.at, c.time()), append(s.key, r.Header.Get("Idempotency-Key"))
		w.WriteHeader(code)
		fmt.Fprintf(w, "attempt %d", len(s.at))
	})
	return s
}

// TestRetry is S3-12: attempts at 0, 2 and 6 s for status 429 and 5xx; POST and PATCH, which
// were sent, once; other codes once. The last response is the result.
func TestRetry(t *testing.T) {
	all := []time.Duration{0, 2 * time.Second, 6 * time.Second}
	for _, c := range []struct {
		tool, method string
		script       []int
		attempts     int
	}{
		{"http_request", "GET", []int{500}, 3},
		{"http_request", "HEAD", []int{503}, 3},
		{"http_request", "PUT", []int{502}, 3},
		{"http_request", "DELETE", []int{429}, 3},
		{"http_request", "POST", []int{500}, 1},
		{"http_request", "PATCH", []int{429}, 1},
		{"http_request", "GET", []int{500, 200}, 2},
		{"http_request", "GET", []int{429, 503, 200}, 3},
		{"http_request", "GET", []int{404}, 1},
		{"http_request", "GET", []int{408}, 1},
		{"web_fetch", "", []int{503}, 3},
		{"web_fetch", "", []int{500, 200}, 2},
		{"web_fetch", "", []int{403}, 1},
	} {
		clock := &clock{}
		o := options()
		o.Wait = clock.wait
		s := newServer(t, clock, c.script...)
		var got struct {
			Status     int
			Text, Body string
		}
		arguments := map[string]string{"url": s.url}
		if c.method != "" {
			arguments["method"] = c.method
		}
		run(t, tool(t, c.tool, o), arguments, &got)
		if !slices.Equal(s.at, all[:c.attempts]) {
			t.Errorf("%s %s %v: attempts at %v", c.tool, c.method, c.script, s.at)
		}
		want := fmt.Sprintf("attempt %d", c.attempts)
		if c.method == "HEAD" {
			want = ""
		}
		if got.Status != c.script[min(c.attempts, len(c.script))-1] || got.Text+got.Body != want {
			t.Errorf("%s %s %v: %+v", c.tool, c.method, c.script, got)
		}
		for _, key := range s.key {
			if effect := c.method == "POST" || c.method == "PATCH"; effect != (key == "turn:tool:1:1") || !effect && key != "" {
				t.Errorf("%s: Idempotency-Key %q", c.method, key)
			}
		}
	}
}

// TestSearchRetry is S3-12 for web_search.
func TestSearchRetry(t *testing.T) {
	clock := &clock{}
	o := options()
	o.Wait = clock.wait
	s := newServer(t, clock, 500)
	o.Search.URL = s.url
	r := run(t, tool(t, "web_search", o), map[string]string{"query": "x"}, nil)
	if len(s.at) != 3 || s.at[2] != 6*time.Second || !strings.Contains(r.Text, "status 500") {
		t.Errorf("%v, %s", s.at, r.Text)
	}
}

// TestRefusedConnection is S3-12: nothing was sent, so that POST is repeated too.
func TestRefusedConnection(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		clock := &clock{}
		o := options()
		o.Wait = clock.wait
		r := run(t, tool(t, "http_request", o), map[string]string{"url": "http://" + address, "method": method}, nil)
		if want := "The host " + address + " refuses connections. Check host and port, or try again later. It was tried 3 times."; r.Text != want || clock.time() != 6*time.Second {
			t.Errorf("%s after %v: %s", method, clock.time(), r.Text)
		}
	}
}

// TestTimeout is S3-12: a server that does not respond is asked three times, and with POST,
// which it may have acted on, once.
func TestTimeout(t *testing.T) {
	for method, attempts := range map[string]int{"GET": 3, "POST": 1} {
		var mu sync.Mutex
		n := 0
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n++
			mu.Unlock()
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		o := options()
		o.HTTP.Timeout = 50 * time.Millisecond
		r := run(t, tool(t, "http_request", o), map[string]string{"url": url, "method": method}, nil)
		mu.Lock()
		if n != attempts || !strings.Contains(r.Text, "did not respond within 50ms") || (method == "POST") != strings.Contains(r.Text, "may have had its effect") || (method == "POST") != r.InDoubt {
			t.Errorf("%s: %d attempts, %s", method, n, r.Text)
		}
		mu.Unlock()
	}
}

// TestBrokenResponse: a response that breaks off is an error and not a short text.
func TestBrokenResponse(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
	})
	for _, name := range []string{"web_fetch", "http_request"} {
		if r := run(t, tool(t, name, options()), map[string]string{"url": url}, nil); !strings.Contains(r.Text, "before its response was complete") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestRedirects: five are followed; no cookie is returned; headers of the model and the
// address it came from stay on the server they are for.
func TestRedirects(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, fmt.Sprintf("%s cookie=%q token=%q referer=%q key=%q", r.Method, r.Header.Get("Cookie"), r.Header.Get("X-Token"), r.Header.Get("Referer"), r.Header.Get("Idempotency-Key")))
		mu.Unlock()
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		to, left := r.URL.Query().Get("to"), len(r.URL.Query().Get("n"))
		switch code := http.StatusTemporaryRedirect; {
		case r.URL.Query().Get("code") == "302":
			http.Redirect(w, r, "/end", http.StatusFound)
		case left > 0:
			http.Redirect(w, r, "/?n="+strings.Repeat("x", left-1), code)
		case to != "":
			w.Header().Set("Location", to)
			w.WriteHeader(code)
		default:
			io.WriteString(w, "the end")
		}
	}
	here, there := serve(t, handler), serve(t, handler)
	call := func(name, method, url string) string {
		seen = nil
		arguments := map[string]any{"url": url}
		if name == "http_request" {
			arguments["method"], arguments["headers"] = method, map[string]string{"X-Token": "secret"}
		}
		r := run(t, tool(t, name, options()), arguments, nil)
		return r.Text + string(r.JSON)
	}
	if got := call("web_fetch", "GET", here+"/?n=xxxxx"); !strings.Contains(got, "the end") || !strings.Contains(got, `"final_url":"`+here+`/?n="`) || len(seen) != 6 {
		t.Errorf("five: %s %q", got, seen)
	}
	for _, s := range seen {
		if s != `GET cookie="" token="" referer="" key=""` {
			t.Error(s)
		}
	}
	if got := call("web_fetch", "GET", here+"/?n=xxxxxx"); !strings.Contains(got, "redirects more than 5 times") || len(seen) != 6 {
		t.Errorf("six: %s %q", got, seen)
	}
	for _, to := range []string{"ftp://example.org/", "file:///etc/passwd", "javascript:alert(1)", "gopher://127.0.0.1/"} {
		if got := call("web_fetch", "GET", here+"/?to="+to); !strings.Contains(got, "is not one of http:// or https://") || len(seen) != 1 {
			t.Errorf("%s: %s %q", to, got, seen)
		}
	}
	call("http_request", "POST", here+"/?n=x")
	if want := `POST cookie="" token="secret" referer="" key="turn:tool:1:1"`; !slices.Equal(seen, []string{want, want}) {
		t.Errorf("the same server: %q", seen)
	}
	call("http_request", "POST", here+"/?to="+there)
	if len(seen) != 2 || seen[1] != `POST cookie="" token="" referer="" key="turn:tool:1:1"` {
		t.Errorf("another server: %q", seen)
	}
	if got := call("http_request", "PUT", here+"/?code=302"); len(seen) != 1 || !strings.Contains(got, `"status":302`) || !strings.Contains(got, `"Location":"/end"`) {
		t.Errorf("a PUT became a GET: %s %q", got, seen)
	}
}

// TestNoProxy: a proxy of the environment is not asked.
func TestNoProxy(t *testing.T) {
	for _, c := range []*client{tool(t, "web_fetch", Options{}).(*fetch).client, tool(t, "http_request", Options{}).(*requester).client, tool(t, "web_search", Options{}).(*search).client} {
		if c.http.Transport.(*http.Transport).Proxy != nil || c.http.Jar != nil {
			t.Error("the client asks for a proxy or holds cookies")
		}
	}
}
