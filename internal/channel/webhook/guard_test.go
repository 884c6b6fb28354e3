package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/channel"
)

// TestGuard: public addresses pass, others with allow_private only, and http:// never leads
// to a public one.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		address                    string
		strict, private, plainHTTP bool
	}{
		{"93.184.216.34", true, true, false},
		{"2606:4700:4700::1111", true, true, false},
		{"127.0.0.1", false, true, true},
		{"10.0.0.1", false, true, true},
		{"fe80::1%eth0", false, true, true},
		{"::ffff:127.0.0.1", false, true, true},
		{"0.0.0.0", false, false, false},
		{"::", false, false, false},
		{"224.0.0.1", false, false, false},
		{"255.255.255.255", false, false, false},
	} {
		a := netip.MustParseAddr(c.address)
		got := []bool{guard{}.check(a) == nil, guard{allowPrivate: true}.check(a) == nil, guard{allowPrivate: true, plain: true}.check(a) == nil}
		if want := []bool{c.strict, c.private, c.plainHTTP}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.address, got, want)
		}
	}
	if (guard{}).control("tcp", "not an address", nil) == nil {
		t.Error("an unreadable address passed")
	}
}

// TestLoopbackRefused: the address is refused before a byte is written, in
// every spelling that leads to it.
func TestLoopbackRefused(t *testing.T) {
	r := newReceiver(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]"} {
		_, err := open(t, Config{URL: "https://" + host + ":" + port}).Send(t.Context(), message())
		if e := failure(t, err, channel.Rejected); e.Reason != channel.ReasonAddressRefused || !e.BeforeSend || e.InDoubt {
			t.Errorf("%s: %+v", host, e)
		}
	}
	if r.count() != 0 {
		t.Error("the server was reached")
	}
}

// dns answers A queries with the addresses of script in turn, over the conn the
// resolver asks for; the last one repeats.
func dns(t *testing.T, script ...string) *net.Resolver {
	var n atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer ours.Close()
			var size [2]byte
			if _, err := io.ReadFull(ours, size[:]); err != nil {
				return
			}
			q := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(ours, q); err != nil {
				return
			}
			end := 12
			for q[end] != 0 {
				end += int(q[end]) + 1
			}
			end += 5 // the root label, type and class
			a := append([]byte{}, q[:end]...)
			a[2], a[3] = 0x84, 0 // an authoritative answer
			clear(a[6:12])
			if binary.BigEndian.Uint16(q[end-4:]) == 1 {
				ip := netip.MustParseAddr(script[min(int(n.Add(1))-1, len(script)-1)]).As4()
				a[7] = 1
				a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				a = append(a, ip[:]...)
			}
			if _, err := ours.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
				t.Error(err)
			}
		}()
		return theirs, nil
	}}
}

// TestRebinding: a name that was fine at the first send is judged again at the
// second, at the address really dialled.
func TestRebinding(t *testing.T) {
	r := newReceiver(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	w := open(t, Config{URL: "http://hook.test.:" + port + "/", AllowPrivate: true})
	w.transport = newTransport(guard{allowPrivate: true, plain: true}.control, dns(t, "127.0.0.1", "0.0.0.0", "93.184.216.34"))
	if _, err := w.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the unspecified address, then plain http to a public one
		_, err := w.Send(t.Context(), message())
		failure(t, err, channel.Rejected)
	}
	w = open(t, Config{URL: "https://hook.test.:" + port + "/"})
	w.transport = newTransport(guard{}.control, dns(t, "127.0.0.1"))
	_, err := w.Send(t.Context(), message())
	failure(t, err, channel.Rejected)
	if r.count() != 1 {
		t.Errorf("%d requests, want the first one only", r.count())
	}
}

// openPublic returns a webhook at https://example.com/ that really is front:
// only that name is dialled past the guard, as if it were a public host.
func openPublic(t *testing.T, front *httptest.Server, secret string) *Webhook {
	t.Helper()
	w := open(t, Config{URL: "https://example.com/", Secret: secret})
	tr := w.transport
	guarded := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasSuffix(address, "example.com:443") {
			address = strings.TrimPrefix(front.URL, "https://")
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return guarded(ctx, network, address)
	}
	pool := x509.NewCertPool()
	pool.AddCert(front.Certificate())
	tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	return w
}

func redirect(code int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", to); w.WriteHeader(code) }
}

// TestRedirectToPrivate: a public receiver cannot send us inside.
func TestRedirectToPrivate(t *testing.T) {
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer inside.Close()
	for _, to := range []string{inside.URL, "https://10.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://169.254.169.254/latest", "https://[fd00::1]:8443/"} {
		r := &receiver{}
		front := httptest.NewTLSServer(r.handler([]http.HandlerFunc{redirect(307, to)}))
		_, err := openPublic(t, front, "").Send(t.Context(), message())
		if e := failure(t, err, channel.Rejected); e.Reason != channel.ReasonAddressRefused || r.count() != 1 {
			t.Errorf("%s: %+v", to, e)
		}
		front.Close()
	}
}

func TestRedirects(t *testing.T) {
	for _, tc := range []struct {
		name, secret string
		script       []http.HandlerFunc
		requests     int
		ok           bool
	}{
		{"same host, signed", "env:HOOK", []http.HandlerFunc{redirect(307, "/new"), redirect(308, "/newer"), status(200)}, 3, true},
		{"three", "", []http.HandlerFunc{redirect(307, "/1"), redirect(307, "/2"), redirect(307, "/3"), status(200)}, 4, true},
		{"four", "", []http.HandlerFunc{redirect(307, "/again")}, 4, false},
		{"another host, unsigned", "", []http.HandlerFunc{redirect(307, "https://www.example.com/"), status(200)}, 2, true},
		{"another host, signed", "env:HOOK", []http.HandlerFunc{redirect(307, "https://www.example.com/"), status(200)}, 1, false},
		{"down to http", "", []http.HandlerFunc{redirect(307, "http://example.com/")}, 1, false},
		{"credentials", "", []http.HandlerFunc{redirect(307, "https://u:p@example.com/")}, 1, false},
		{"becomes a GET", "", []http.HandlerFunc{redirect(302, "/"), status(200)}, 1, false},
		{"nowhere", "", []http.HandlerFunc{status(307)}, 1, false},
		{"unreadable", "", []http.HandlerFunc{redirect(307, "https://%zz/")}, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &receiver{}
			front := httptest.NewTLSServer(r.handler(tc.script))
			defer front.Close()
			_, err := openPublic(t, front, tc.secret).Send(t.Context(), message())
			if tc.ok && err != nil {
				t.Fatal(err)
			}
			if !tc.ok {
				failure(t, err, channel.Rejected)
			}
			if r.count() != tc.requests {
				t.Errorf("%d requests", r.count())
			}
			for i, b := range r.bodies {
				if b != r.bodies[0] || !strings.HasPrefix(b, "POST {") || r.headers[i].Get("Idempotency-Key") != message().Key {
					t.Errorf("request %d is another one", i)
				}
			}
		})
	}
}

// TestUntrusted: a certificate nobody signed is an outage, not a verdict on the
// message: it is there again when the operator has renewed it.
func TestUntrusted(t *testing.T) {
	r := &receiver{}
	s := httptest.NewUnstartedServer(r.handler(nil))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it will complain about our refusal
	s.StartTLS()
	defer s.Close()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, Config{URL: u.String(), AllowPrivate: true}).Send(t.Context(), message())
	if e := failure(t, err, channel.Unavailable); e.InDoubt || r.count() != 0 {
		t.Errorf("%+v", e)
	}
}
