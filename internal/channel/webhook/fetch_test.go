package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/netguard"
)

// onLoopback fetches from servers of tests.
func onLoopback() *Fetcher {
	return NewFetcher(netguard.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

// posted is a message with one attachment, as JSON.
func posted(attachment string) []byte {
	return fmt.Appendf(nil, `{"id":"1","from":{"id":"c7"},"attachments":[%s]}`, attachment)
}

// fetched is the content of the attachment of a post.
func fetched(ctx context.Context, f *Fetcher, address string, limit int64) (string, error) {
	u, err := Read("shop", posted(fmt.Sprintf(`{"url":%q}`, address)), f)
	if err != nil {
		return "", err
	}
	in, err := u.Attachments[0].Open(ctx, limit)
	if err != nil {
		return "", err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return string(b), err
}

// S2-16: an attachment has an address or its data; what is wrong with one is named with its field.
func TestReadAttachments(t *testing.T) {
	for _, c := range []struct{ name, attachment, want string }{
		{"neither", `{"name":"a.txt"}`, "attachments[0].url or .data is required"},
		{"both", `{"url":"https://example.org/a","data":"YQ=="}`, "attachments[0] has url and data, of which it can have one"},
		{"no base64", `{"data":"%%%"}`, "attachments[0].data is not base64"},
		{"half of it", `{"data":"YQ="}`, "attachments[0].data is not base64"},
		{"another scheme", `{"url":"file:///etc/passwd"}`, "attachments[0].url is not an http:// or https:// address of at most 2048 bytes"},
		{"no host", `{"url":"https:///a"}`, "attachments[0].url is not an http:// or https:// address of at most 2048 bytes"},
		{"no address", `{"url":"http://[::1"}`, "attachments[0].url is not an http:// or https:// address of at most 2048 bytes"},
		{"long", `{"url":"https://example.org/` + strings.Repeat("a", 2048) + `"}`, "attachments[0].url is not an http:// or https:// address of at most 2048 bytes"},
		{"a password", `{"url":"https://u:` + canary + `@example.org/a"}`, "attachments[0].url holds a name or a password"},
		{"a number", `{"url":1}`, "attachments.url is a number, and wants a string"},
		{"eleven", strings.Repeat(`{"data":"YQ=="},`, 10) + `{"data":"YQ=="}`, "10 attachments are the most"},
	} {
		if _, err := Read("shop", posted(c.attachment), nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	u, err := Read("shop", posted(`{"data":"aGVsbG8=","name":"../a.txt","mime":"text/plain"},{"url":"https://example.org/d/b.pdf?token=x"},{"url":"http://example.org","name":"c"}`), nil)
	if err != nil || len(u.Attachments) != 3 {
		t.Fatal(u, err)
	}
	if a := u.Attachments[0]; string(a.Data) != "hello" || a.Size != 5 || a.Name != "../a.txt" || a.MIME != "text/plain" || a.Open != nil {
		t.Errorf("%+v", a)
	}
	if b, c := u.Attachments[1], u.Attachments[2]; b.Name != "b.pdf" || b.Data != nil || b.Open == nil || c.Name != "c" {
		t.Errorf("%+v, %+v", b, c)
	}
}

// A file is what its server has, up to the limit, whatever size it states. An error names the host and what a repeat
// may change, and nothing else of the address.
func TestFetch(t *testing.T) {
	const long = 100
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Referer") != "" || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%v", r.Header)
		}
		fmt.Fprint(w, "good")
	})
	mux.HandleFunc("/stated", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(long))
		fmt.Fprint(w, strings.Repeat("x", long))
	})
	mux.HandleFunc("/chunked", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, strings.Repeat("x", long))
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(long))
		fmt.Fprint(w, "x")
	})
	mux.HandleFunc("/packed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		fmt.Fprint(w, "as it is")
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for path, to := range map[string]string{"/once": "/good", "/again": "/again", "/ftp": "ftp://example.org/", "/user": "http://u:p@127.0.0.1/", "/mail": "mailto:a@b"} {
		mux.Handle(path, redirect(http.StatusFound, to))
	}
	for path, code := range map[string]int{"/401": 401, "/404": 404, "/429": 429, "/500": 500, "/503": 503, "/204": 204, "/304": 304, "/302": 302} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	s := httptest.NewServer(mux)
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		path, want, err string
		class           channel.Class
	}{
		{"/good", "good", "", 0},
		{"/once", "good", "", 0},
		{"/packed", "as it is", "", 0},
		{"/short", "x", "HOST broke the transfer off", channel.Failed},
		{"/again", "", "HOST redirects more than 3 times", channel.Rejected},
		{"/ftp", "", "HOST redirects to an address that is not an http:// or https:// address of at most 2048 bytes", channel.Rejected},
		{"/user", "", "HOST redirects to an address that holds a name or a password", channel.Rejected},
		{"/mail", "", "HOST redirects to an address that is not an http:// or https:// address of at most 2048 bytes", channel.Rejected},
		{"/401", "", "HOST answered 401", channel.Rejected},
		{"/404", "", "HOST answered 404", channel.Rejected},
		{"/429", "", "HOST answered 429", channel.Unavailable},
		{"/500", "", "HOST answered 500", channel.Failed},
		{"/503", "", "HOST answered 503", channel.Unavailable},
		{"/204", "", "HOST answered 204", channel.Rejected},
		{"/304", "", "HOST answered 304", channel.Rejected},
	} {
		got, err := fetched(t.Context(), onLoopback(), s.URL+c.path+"?token="+canary, 2*long)
		if c.err == "" {
			if err != nil || got != c.want {
				t.Errorf("%s: %q, %v", c.path, got, err)
			}
			continue
		}
		if e := failure(t, err, c.class); got != c.want || e.What != strings.ReplaceAll(c.err, "HOST", host) {
			t.Errorf("%s: %q, %q", c.path, got, e.What)
		}
	}
	for _, path := range []string{"/stated", "/chunked"} {
		if _, err := fetched(t.Context(), onLoopback(), s.URL+path, long-1); !errors.Is(err, channel.ErrTooLarge) {
			t.Errorf("%s: %v", path, err)
		}
		if got, err := fetched(t.Context(), onLoopback(), s.URL+path, long); err != nil || len(got) != long {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := fetched(ctx, onLoopback(), s.URL+"/hangs?token="+canary, 20)
	if e := failure(t, err, channel.Failed); e.What != host+" did not answer in time" {
		t.Errorf("%q", e.What)
	}
	s.Close()
	_, err = fetched(t.Context(), onLoopback(), s.URL+"/good?token="+canary, 20)
	if e := failure(t, err, channel.Failed); e.What != host+" cannot be reached" {
		t.Errorf("%q", e.What)
	}
	// A redirect does not give up encryption.
	front := httptest.NewTLSServer(redirect(http.StatusFound, "http://example.org/"))
	defer front.Close()
	f := onLoopback()
	f.client.Transport.(*http.Transport).TLSClientConfig = front.Client().Transport.(*http.Transport).TLSClientConfig
	_, err = fetched(t.Context(), f, front.URL, 20)
	if e := failure(t, err, channel.Rejected); !strings.HasSuffix(e.What, " redirects from https:// to http://") {
		t.Errorf("%q", e.What)
	}
}

// outside is the address of the public server of [TestFetchGuard].
const outside = "93.184.216.34"

// TestFetchGuard: no address of a post, no redirect and no second answer of a name leads to an address that is not
// public, and each does without the guard.
func TestFetchGuard(t *testing.T) {
	redirected := func(to string) []string { return []string{"http://front.test/?to=" + to} }
	rebound := map[string][]string{"rebind.test": {outside, "127.0.0.1"}, "front.test": {outside}, "inside.test": {"127.0.0.1"}, "mapped.test": {"::ffff:127.0.0.1"}, "2130706433": {"127.0.0.1"}, "0x7f.1": {"127.0.0.1"}}
	cases := [][]string{
		{"http://127.0.0.1:PORT/"},
		{"http://[::1]:PORT/"},
		{"http://[::ffff:127.0.0.1]:PORT/"},
		{"http://[::ffff:7f00:1]:PORT/"},
		{"http://[64:ff9b::7f00:1]:PORT/"},
		{"http://0.0.0.0:PORT/"},
		{"http://10.0.0.1:PORT/"},
		{"http://169.254.169.254/latest/meta-data/"},
		{"http://[fd00:ec2::254]/"},
		{"http://2130706433:PORT/"},
		{"http://0x7f.1:PORT/"},
		{"http://inside.test:PORT/"},
		{"http://mapped.test:PORT/"},
		{"http://rebind.test/?to=200", "http://rebind.test:PORT/"}, // the first answer of the name is public
		{"http://rebind.test/?to=http://rebind.test:PORT/"},
		redirected("http://169.254.169.254/latest/meta-data/"),
		redirected("http://127.0.0.1:PORT/"),
		redirected("//[::1]:PORT/"),
		redirected("http://[::ffff:127.0.0.1]:PORT/"),
		redirected("http://2130706433:PORT/"),
		redirected("http://front.test/?to=http://127.0.0.1:PORT/"),
	}
	for _, calls := range cases {
		for _, guarded := range []bool{true, false} {
			var reached atomic.Int32
			target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, to, _ := strings.Cut(r.URL.RawQuery, "to="); to != "200" {
					redirect(http.StatusFound, to)(w, r)
				}
			}))
			_, port, _ := net.SplitHostPort(target.Listener.Addr().String())
			f, asked := NewFetcher(netguard.Guard{}), map[string]int{}
			transport := f.client.Transport.(*http.Transport)
			ours := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				if script := rebound[host]; script != nil {
					asked[host]++
					host = script[min(asked[host], len(script))-1]
				}
				switch {
				case host == outside:
					address = front.Listener.Addr().String()
				case guarded:
					return ours(ctx, network, net.JoinHostPort(host, port))
				default:
					address = target.Listener.Addr().String()
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			for i, address := range calls {
				_, err := fetched(t.Context(), f, strings.ReplaceAll(address, "PORT", port), 20)
				switch last := i == len(calls)-1; {
				case !last && err != nil:
					t.Errorf("%s: %v", address, err)
				case last && guarded:
					if e := failure(t, err, channel.Rejected); !strings.HasSuffix(e.What, " has, or redirects to, an address that is not public") || reached.Load() > 0 {
						t.Errorf("%s passed: %v", address, err)
					}
				case last && reached.Load() != 1:
					t.Errorf("%s did not reach its target without the guard: %v", address, err)
				}
			}
			front.Close()
			target.Close()
		}
	}
}

// TestFetchRebinding: the resolver of the system is asked for each request, and each answer of it is checked.
func TestFetchRebinding(t *testing.T) {
	r := newReceiver(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	for _, answer := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254"} {
		f := &Fetcher{&http.Client{Transport: newTransport(netguard.Guard{}.Control, dns(t, answer)), CheckRedirect: followFile}}
		_, err := fetched(t.Context(), f, "http://files.test.:"+port+"/", 20)
		failure(t, err, channel.Rejected)
	}
	if r.count() > 0 {
		t.Errorf("%d requests", r.count())
	}
}
