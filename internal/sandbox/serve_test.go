//go:build linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
)

// A program reaches what we serve, at every level with a network of its own, and each of its
// connections has ended with it.
func TestServe(t *testing.T) {
	for _, l := range []Level{LevelFull, LevelPrivileged, LevelBubblewrap} {
		t.Run(string(l), func(t *testing.T) {
			s := only(t, l)
			var met, begun, ended atomic.Int32
			c := Command{
				Workdir: workdir(t, l), Timeout: 20 * time.Second,
				Shell: `exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; head -1 <&3; (exec 4<>/dev/tcp/127.0.0.1/3128; echo hello >&4; head -1 <&4 >ready; sleep 60) & until [ -s ready ]; do :; done`,
				Serve: func(ln net.Listener) {
					begun.Add(1)
					for {
						c, err := ln.Accept()
						if err != nil {
							ended.Add(1)
							return
						}
						met.Add(1)
						go func() {
							defer c.Close()
							b := make([]byte, 6)
							if _, err := io.ReadFull(c, b); err == nil {
								_, _ = c.Write([]byte("served " + string(b)))
							}
						}()
					}
				},
			}
			r, err := s.Run(t.Context(), c)
			if err != nil || !strings.HasPrefix(string(r.Stdout), "served hello\n") || met.Load() != 2 || ended.Load() != 1 {
				t.Fatalf("%+v %v, stdout %q, stderr %q, %d connections, %d ends", r, err, r.Stdout, r.Stderr, met.Load(), ended.Load())
			}
			// A program that does nothing, one that is not found, and one that is ended.
			for _, shell := range []string{"true", "/missing"} {
				c.Shell = shell
				if _, err := s.Run(t.Context(), c); err != nil {
					t.Errorf("%s: %v", shell, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			c.Shell = "sleep 60"
			if r, err := s.Run(ctx, c); err != nil || !r.Canceled {
				t.Errorf("%+v %v", r, err)
			}
			if n := begun.Load(); ended.Load() != n || n < 3 { // the last one may have been ended before it was there
				t.Errorf("%d of %d listeners have ended", ended.Load(), n)
			}
			c.Shell, c.Serve = "exec 3<>/dev/tcp/127.0.0.1/3128", nil
			if r, err := s.Run(t.Context(), c); err != nil || r.ExitCode == 0 {
				t.Errorf("without a server: %+v %v", r, err)
			}
		})
	}
}

// Where a program has no network of its own the promise cannot be held, and nothing runs.
func TestServeIsRefused(t *testing.T) {
	s := only(t, LevelReduced)
	_, err := s.Run(t.Context(), Command{Shell: "true", Workdir: workdir(t, LevelReduced), Serve: func(net.Listener) { t.Error("served") }})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Reason != fault.SandboxUnavailable {
		t.Errorf("%v", err)
	}
}
