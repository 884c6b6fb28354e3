package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/egress/proxy"
	"github.com/theclaw/agents/internal/netguard"
)

// BenchmarkCopy reads 64 MiB from a server of this machine: directly, and through the proxy.
func BenchmarkCopy(b *testing.B) {
	const size = 64 << 20
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				block := make([]byte, 64<<10)
				for range size / len(block) {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}()
	address := strings.Replace(server.Addr().String(), "127.0.0.1", "localhost", 1)
	hosts, err := egress.Parse([]string{address})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		proxy.New(hosts, "sandbox.network", netguard.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, nil).Serve(listener)
	}()
	defer func() {
		_ = listener.Close()
		<-ended
	}()
	read := func(b *testing.B, c net.Conn, from io.Reader) {
		defer c.Close()
		if n, err := io.Copy(io.Discard, from); n != size {
			b.Fatal(n, err)
		}
	}
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			read(b, c, c)
		}
	})
	b.Run("proxy", func(b *testing.B) {
		for b.Loop() {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
			from := bufio.NewReader(c)
			r, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
			if err != nil || r.StatusCode != http.StatusOK {
				_ = c.Close()
				b.Fatal(r, err)
			}
			read(b, c, from)
		}
	})
}
