package broker_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// workdir is a directory with a path longer than the address of a socket.
func workdir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // Ask changes it
	return dir
}

func open(t *testing.T, dir string, create broker.Create) *broker.Broker {
	t.Helper()
	b, err := broker.Listen(t.Context(), dir, create)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// say writes a line and answers what comes back, nothing when it is hung up.
func say(t *testing.T, b *broker.Broker, line string) string {
	t.Helper()
	t.Chdir(filepath.Dir(b.Path()))
	c, err := net.Dial("unix", filepath.Base(b.Path()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
	return said
}

// An agent is asked for, and what became of it comes back: its directory, or why not
// and what to do.
func TestAsk(t *testing.T) {
	dir := workdir(t)
	b := open(t, dir, func(_ context.Context, r broker.Request) (string, error) {
		if r.AgentID == "eve" {
			return "", fault.New(codes.PermissionDenied, fault.ApprovalClosed, "no", "do not")
		}
		return "/agents/" + r.AgentID + " " + r.Words(), nil
	})
	defer b.Close()
	st, err := os.Lstat(b.Path())
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", st.Mode(), err)
	}
	got, err := broker.Ask(t.Context(), b.Path(), broker.Request{AgentID: "bob", System: true, Provider: "p", Model: "m/1"})
	if err != nil || got != "/agents/bob agent init bob --kind system --provider p --model m/1" {
		t.Errorf("%q, %v", got, err)
	}
	_, err = broker.Ask(t.Context(), b.Path(), broker.Request{AgentID: "eve"})
	if f := fault.From(err); f.Code != codes.PermissionDenied || f.Reason != fault.ApprovalClosed || f.What != "no" || f.Fix != "do not" {
		t.Errorf("%+v", f)
	}
}

// Any other method, any other field, too much of anything is refused, and
// nobody is asked about it.
func TestRefused(t *testing.T) {
	b := open(t, workdir(t), func(context.Context, broker.Request) (string, error) {
		t.Error("somebody was asked")
		return "", nil
	})
	defer b.Close()
	for line, want := range map[string]string{
		`{"method":"StopAgent","agent_id":"bob"}`:                            "no method",
		`{"method":"/theclaw.registry.v1.AgentService/CreateAgent"}`:         "no method",
		`{"method":"CreateAgent","agent_id":"bob","identity":"x"}`:           "not understood",
		`{"method":"CreateAgent","agent_id":"bob"} {"method":"CreateAgent"}`: "not understood",
		`{"method":"CreateAgent","agent_id":"../bob"}`:                       "",
		`{"method":"CreateAgent"}`:                                           "",
		`{"method":"CreateAgent","agent_id":"bob","kind":"root"}`:            "--kind",
		`{"method":"CreateAgent","agent_id":"bob","model":"x\u001b[2J"}`:     "--model",
		`{"method":"CreateAgent","agent_id":"bob","provider":"--kind"}`:      "--provider",
		`PRI * HTTP/2.0`:          "not understood",
		strings.Repeat("x", 5000): "not understood",
	} {
		if got := say(t, b, line+"\n"); !strings.HasPrefix(got, `{"error":`) || !strings.Contains(got, want) {
			t.Errorf("%.60s: %q", line, got)
		}
	}
}

// One command asks a bounded number of times, and then there is no socket.
func TestBounded(t *testing.T) {
	asked := atomic.Int32{}
	b := open(t, workdir(t), func(context.Context, broker.Request) (string, error) {
		asked.Add(1)
		return "/x", nil
	})
	defer b.Close()
	var err error
	for n := 0; n < 100 && err == nil; n++ {
		_, err = broker.Ask(t.Context(), b.Path(), broker.Request{AgentID: "bob"})
	}
	if f := fault.From(err); f.Reason != fault.ServiceUnavailable || asked.Load() != 16 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// Who hangs up asks no longer, and the end of the command ends what it has asked.
func TestHangUp(t *testing.T) {
	dir := workdir(t)
	began, ended := make(chan struct{}), make(chan struct{}, 2)
	b := open(t, dir, func(ctx context.Context, _ broker.Request) (string, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return "", ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := broker.Ask(ctx, b.Path(), broker.Request{AgentID: "bob"}); err == nil {
		t.Error("answered")
	}
	<-ended
	go func() {
		<-began
		b.Close()
	}()
	if _, err := broker.Ask(t.Context(), b.Path(), broker.Request{AgentID: "bob"}); err == nil {
		t.Error("answered")
	}
	<-ended
	b.Close()
	if left, err := os.ReadDir(filepath.Dir(b.Path())); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// What a killed process has left goes; a socket that another command has stays; and
// what the program puts in our way leads nowhere.
func TestLeftovers(t *testing.T) {
	dir := workdir(t)
	never := func(context.Context, broker.Request) (string, error) { return "/x", nil }
	first := open(t, dir, never)
	defer first.Close()
	old, outside := filepath.Join(filepath.Dir(first.Path()), "0123"), filepath.Join(t.TempDir(), "precious")
	for _, p := range []string{old, outside} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := open(t, dir, never)
	if _, err := os.Lstat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if _, err := broker.Ask(t.Context(), first.Path(), broker.Request{AgentID: "bob"}); err != nil {
		t.Error(err)
	}
	second.Close()

	trap := workdir(t)
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(trap, ".broker")); err != nil {
		t.Fatal(err)
	}
	if b, err := broker.Listen(t.Context(), trap, never); err == nil {
		t.Error("followed a link")
		b.Close()
	}
	if list, err := os.ReadDir(filepath.Dir(outside)); err != nil || len(list) != 1 {
		t.Errorf("outside there are %v, %v", list, err)
	}
}
