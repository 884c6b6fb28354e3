package main

import (
	"net"
	"testing"
)

// A worker is called where it listens; one that listens everywhere, where its machine
// reaches the registry; and anywhere else if that is said.
func TestAdvertised(t *testing.T) {
	for _, c := range []struct{ listen, advertise, want string }{
		{"127.0.0.1:0", "", "127.0.0.1"},
		{"0.0.0.0:0", "", "127.0.0.2"},
		{"0.0.0.0:0", "runner-2.example.org:7444", "runner-2.example.org"},
	} {
		e := &env{options: options{
			listen: c.listen, advertise: c.advertise, registry: "dns:///127.0.0.2:7443,dns:///192.0.2.1:7443", services: choose("runner"),
		}}
		if err := e.bind(); err != nil {
			t.Fatal(err)
		}
		host, port, err := net.SplitHostPort(e.advertised())
		_, bound, _ := net.SplitHostPort(e.listener.Addr().String())
		if c.advertise != "" {
			bound = "7444"
		}
		if err != nil || port != bound || host != c.want && (c.want != "127.0.0.2" || host != "127.0.0.1") {
			t.Errorf("%s is called at %s, %v", c.listen, e.advertised(), err)
		}
		if err := e.listener.Close(); err != nil {
			t.Error(err)
		}
	}
}
