package netguard

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

// addresses: true is public. The SSRF row of SECURITY.
var addresses = map[string]bool{
	"93.184.216.34": true, "1.1.1.1": true, "2606:4700:4700::1111": true, "64:ff9b::808:808": true, "2002:808:808::1": true,
	"100.63.255.255": true, "100.128.0.0": true, "172.15.255.255": true, "172.32.0.0": true,
	"127.0.0.1": false, "127.255.255.254": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
	"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "100.64.0.1": false, "100.127.255.255": false,
	"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "fec0::1": false,
	"224.0.0.1": false, "ff02::1": false, "240.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false, "192.0.2.1": false,
	"::ffff:127.0.0.1": false, "::ffff:8.8.8.8": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b:1::808:808": false,
	"2002:7f00:1::1": false, "2002:a9fe:a9fe::1": false, "2001::1": false, "2001:db8::1": false, "3fff::1": false, "100::1": false,
	"2606:4700:4700::1111%eth0": false,
}

func TestPublic(t *testing.T) {
	for s, want := range addresses {
		a := netip.MustParseAddr(s)
		if Public(a) != want {
			t.Errorf("Public(%s) = %v", s, !want)
		}
		err := Guard{}.Check(a)
		if refused, ok := errors.AsType[*Refused](err); (err == nil) != want || err != nil && (!ok || refused.Address != a.String()) {
			t.Errorf("%s: %v", s, err)
		}
		if err := (Guard{Allow: Everywhere}).Check(a); (err == nil) == never(a.WithZone("").Unmap()) {
			t.Errorf("%s with all addresses allowed: %v", s, err)
		}
	}
}

// TestAllow: what is allowed can be reached in each of its forms, and nothing next to it.
func TestAllow(t *testing.T) {
	g := Guard{Allow: prefixes("10.1.0.0/16", "fe80::/10", "0.0.0.0/8")}
	for s, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fe80::1%eth0": true, "1.1.1.1": true,
		"10.2.0.1": false, "127.0.0.1": false, "0.0.0.0": false, "::ffff:0.0.0.0": false, "fec0::1": false,
	} {
		if err := g.Check(netip.MustParseAddr(s)); (err == nil) != want {
			t.Errorf("%s: %v", s, err)
		}
	}
	if g.Check(netip.Addr{}) == nil || g.Control("tcp", "not an address", nil) == nil {
		t.Error("what is no address passed")
	}
}

// TestControl: the hook of a dialer refuses before the server sees a connection.
func TestControl(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			t.Error("the server got a connection")
		}
	}
	server.Start()
	address := server.Listener.Addr().String()
	conn, err := (&net.Dialer{Control: Guard{}.Control}).DialContext(t.Context(), "tcp", address)
	if _, ok := errors.AsType[*Refused](err); !ok {
		t.Errorf("%v, %v", conn, err)
	}
	server.Close() // has accepted all there was
	reached := httptest.NewServer(nil)
	defer reached.Close()
	d := net.Dialer{Control: Guard{Allow: prefixes("127.0.0.0/8")}.Control}
	conn, err = d.DialContext(t.Context(), "tcp", reached.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// FuzzPublic: whatever is called public is in none of the classes that the
// standard library knows, in any of the forms an address can be wrapped in.
func FuzzPublic(f *testing.F) {
	for s := range addresses {
		b := netip.MustParseAddr(s).As16()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok || !Public(a) {
			return
		}
		inner := a
		if b := a.As16(); nat64.Contains(a) {
			inner = netip.AddrFrom4([4]byte(b[12:]))
		}
		if !inner.IsGlobalUnicast() || inner.IsPrivate() || inner.IsLoopback() || inner.IsLinkLocalUnicast() || inner.Is4In6() || never(a) {
			t.Errorf("%v is called public", a)
		}
		if a.Is4() && Public(netip.AddrFrom16(a.As16())) {
			t.Errorf("%v is public even when mapped", a)
		}
	})
}
