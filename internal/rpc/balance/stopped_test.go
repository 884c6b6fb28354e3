//go:build proof

package balance_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
	"github.com/theclaw/agents/internal/rpc/serve"
)

const child = "SEVERAL_TEST_SERVER"

// TestMain lets the test binary be a server that may be stopped.
func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		err = serve.Serve(context.Background(), serve.Options{Listener: l, Insecure: true})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func server(t *testing.T) (address string, p *os.Process) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), child+"=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // a stopped one too
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "dns:///" + strings.TrimSpace(line), c.Process
}

// A server that hangs and is not dead (SIGSTOP) costs a short call some seconds: then
// another answers it, within the deadline that calls have without one of their own. What
// waits there is told soon, and is asked anew elsewhere.
func TestStopped(t *testing.T) {
	one, doomed := server(t)
	two, _ := server(t)
	cc, err := balance.Dial(one+","+two, rpc.DialOptions{Insecure: true, WaitForReady: true, Safe: []string{healthpb.Health_Check_FullMethodName}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	c := healthpb.NewHealthClient(cc)
	watched := make(chan error, 16)
	met := map[string]bool{} // both are connected when both have answered
	for n := 0; len(met) < 2 && n < 10000; n++ {
		var at peer.Peer
		if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Peer(&at)); err != nil {
			t.Fatal(err)
		}
		met[at.Addr.String()] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 { // one at each
		w, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := w.Recv()
			watched <- err
		}()
	}
	if err := doomed.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped, longest := time.Now(), time.Duration(0)
	for range 6 {
		begun := time.Now()
		if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		longest = max(longest, time.Since(begun))
	}
	t.Logf("the longest call took %v", longest.Round(time.Millisecond))
	if longest > 10*time.Second {
		t.Errorf("a call took %v", longest)
	}
	select {
	case err := <-watched:
		t.Logf("who waited there was told after %v: %v", time.Since(stopped).Round(time.Millisecond), err)
		if status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("who waited there still waits")
	}
}
