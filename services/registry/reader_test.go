package registry_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// The processes that ask for the lease of tg.
const (
	holderOne = "gateway-01JD0000000000000000000000"
	holderTwo = "gateway-2-01JD0000000000000000000000"
)

// reading is a registry with the account tg, which strangers may not write to, and wh, to which programs post.
func reading(t *testing.T, o backendtest.Options) (w, one, two *backendtest.World) {
	t.Helper()
	w = o.Start(t, registry.Config{})
	setHome(t, o, w, "channels:\n  tg: {type: telegram, token: \"env:TG\", allow_from: [ann]}\n  wh: {type: webhook, dm: open}\n")
	w.Create("admin")
	return w, w.As(rpc.Identity{Kind: rpc.Service, Name: "gateway"}), w.As(rpc.Identity{Kind: rpc.Service, Name: "gateway-2"})
}

// read asks for the lease of tg.
func read(ctx context.Context, w *backendtest.World, holder string, wait time.Duration) (*registryv1.Lease, error) {
	r, err := w.Leases.AcquireLease(ctx, &registryv1.AcquireLeaseRequest{
		Kind: registryv1.LeaseKind_LEASE_KIND_CHANNEL, Account: "tg", Holder: holder, RequestId: "receive", Ttl: backendtest.DurationOf(10 * time.Minute),
		Wait: backendtest.DurationOf(wait),
	})
	return r.GetLease(), err
}

// S2-12: of two gateways one has the lease of an account. The other one waits for it, and gets it at once when it is
// given back; then the first stores nothing and gets no answer that it could act upon.
func TestOneReader(t *testing.T) { backendtest.Each(t, testOneReader) }

func testOneReader(t *testing.T, o backendtest.Options) {
	w, one, two := reading(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second) // less than the wait
	defer cancel()
	l, err := read(ctx, one, holderOne, 0)
	if l = backendtest.Must(t, l, err); l.GetResource() != "channel/tg" || !l.GetLive() {
		t.Fatalf("%v", l)
	}
	if again, err := read(ctx, one, holderOne, 0); err != nil || again.GetToken() != l.GetToken() {
		t.Errorf("the same request once more: %v %v", again, err)
	}
	if _, err := read(ctx, two, holderTwo, 0); !fault.Is(err, fault.LeaseHeld) || fault.From(err).Meta["holder"] != holderOne {
		t.Errorf("held: %v", err)
	}
	late := rpc.WithFence(ctx, l.GetResource(), l.GetToken(), holderOne)
	send := func(ctx context.Context, w *backendtest.World, account, key, peer string, check bool) (registryv1.AcceptOutcome, error) {
		m := inbound(key, peer, "hello")
		r, err := w.Channels.AcceptMessages(ctx, &registryv1.AcceptMessagesRequest{Account: account, Messages: []*registryv1.InboundMessage{m}, Check: check})
		if err != nil {
			return 0, err
		}
		return r.GetResults()[0].GetOutcome(), nil
	}
	put := func(ctx context.Context, w *backendtest.World, value string) error {
		_, err := w.Channels.PutCursor(ctx, &registryv1.PutCursorRequest{Account: "tg", Identity: "bot", Name: "offset", Value: value})
		return err
	}
	if got, err := send(late, one, "tg", "1", "ann", false); err != nil || got != accepted {
		t.Fatalf("under the lease: %v %v", got, err)
	}
	if err := put(late, one, "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := send(ctx, one, "tg", "1", "ann", false); !fault.Is(err, fault.LeaseLost) || status.Code(err) != codes.Aborted {
		t.Errorf("without a lease: %v", err)
	}
	if _, err := send(late, two, "tg", "1", "ann", false); status.Code(err) != codes.PermissionDenied {
		t.Errorf("under the lease of another gateway: %v", err)
	}
	if got, err := send(ctx, two, "wh", "w1", "ann", false); err != nil || got != accepted {
		t.Errorf("an account to which programs post: %v %v", got, err)
	}
	if got, err := send(ctx, w, "tg", "1", "ann", false); err != nil || got != duplicate {
		t.Errorf("the owner: %v %v", got, err)
	}

	granted := make(chan *registryv1.Lease, 1)
	go func() {
		l, err := read(ctx, two, holderTwo, time.Minute)
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	if _, err := one.Leases.RenewLease(ctx, &registryv1.RenewLeaseRequest{Resource: l.GetResource(), Token: l.GetToken(), Holder: holderOne}); err != nil {
		t.Error(err)
	}
	if _, err := one.Leases.ReleaseLease(ctx, &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()}); err != nil {
		t.Fatal(err)
	}
	next := <-granted
	if next.GetToken() <= l.GetToken() {
		t.Fatalf("%v after %v", next, l)
	}

	for _, c := range []struct {
		what, key, peer string
		check           bool
	}{
		{"a message", "2", "ann", false},
		{"a repeat", "1", "ann", false},
		{"a stranger", "3", "bob", false},
		{"a check", "2", "ann", true},
	} {
		if got, err := send(late, one, "tg", c.key, c.peer, c.check); !fault.Is(err, fault.LeaseLost) {
			t.Errorf("%s of a late gateway: %v %v", c.what, got, err)
		}
	}
	if err := put(late, one, "0"); !fault.Is(err, fault.LeaseLost) {
		t.Errorf("a cursor of a late gateway: %v", err)
	}
	cursor, err := w.Channels.GetCursor(ctx, &registryv1.GetCursorRequest{Account: "tg", Identity: "bot", Name: "offset"})
	if got := backendtest.Must(t, cursor, err).GetValue(); got != "1" {
		t.Errorf("the cursor is %q", got)
	}
	pairings, err := w.Channels.ListPairings(ctx, &registryv1.ListPairingsRequest{})
	if n := len(backendtest.Must(t, pairings, err).GetPairings()); n != 0 {
		t.Errorf("%d pairings", n)
	}
	now := rpc.WithFence(ctx, next.GetResource(), next.GetToken(), holderTwo)
	for key, want := range map[string]registryv1.AcceptOutcome{"1": duplicate, "2": accepted} {
		if got, err := send(now, two, "tg", key, "ann", false); err != nil || got != want {
			t.Errorf("message %s by the next gateway: %v %v", key, got, err)
		}
	}
}

// A group message that starts no turn, and an edit, are refused like the others when they come late, and a lease is
// asked for as the kind says.
func TestLateContext(t *testing.T) { backendtest.Each(t, testLateContext) }

func testLateContext(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	setHome(t, o, w, "channels:\n  tg: {type: telegram, token: \"env:TG\", groups: {allow: ['*']}}\n")
	w.Create("admin")
	one := w.As(rpc.Identity{Kind: rpc.Service, Name: "gateway"})
	l, err := read(t.Context(), one, holderOne, 0)
	l = backendtest.Must(t, l, err)
	late := rpc.WithFence(t.Context(), l.GetResource(), l.GetToken(), holderOne)
	conversation := ""
	say := func(key, edit string) error {
		m := &registryv1.InboundMessage{Key: key, Kind: "group", SessionId: "g7", PeerId: "ann", Text: "hello", EditOf: edit}
		r, err := one.Channels.AcceptMessages(late, &registryv1.AcceptMessagesRequest{Account: "tg", Messages: []*registryv1.InboundMessage{m}})
		if err == nil {
			conversation = r.GetResults()[0].GetThreadId()
		}
		return err
	}
	if err := say("1", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Leases.ReleaseLease(t.Context(), &registryv1.ReleaseLeaseRequest{Resource: l.GetResource(), Token: l.GetToken()}); err != nil {
		t.Fatal(err)
	}
	for key, edit := range map[string]string{"2": "", "1:e2": "1"} {
		if err := say(key, edit); !fault.Is(err, fault.LeaseLost) {
			t.Errorf("%s: %v", key, err)
		}
	}
	r, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "admin", ThreadId: conversation}})
	if n := len(backendtest.Must(t, r, err).GetEvents()); n != 1 {
		t.Errorf("%d events in %s", n, conversation)
	}
	for name, req := range map[string]*registryv1.AcquireLeaseRequest{
		"an agent and an account": {Kind: registryv1.LeaseKind_LEASE_KIND_CHANNEL, AgentId: "admin", Account: "tg"},
		"no account":              {Kind: registryv1.LeaseKind_LEASE_KIND_CHANNEL},
		"an account to run":       {Kind: registryv1.LeaseKind_LEASE_KIND_RUN, Account: "tg"},
		"nothing":                 {Kind: registryv1.LeaseKind_LEASE_KIND_RUN},
	} {
		req.Holder, req.RequestId = holderOne, "r"
		if _, err := w.Leases.AcquireLease(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent with the name of an account has leases of its own: it is removed while the account is received for.
func TestAccountNamedAsAgent(t *testing.T) { backendtest.Each(t, testAccountNamedAsAgent) }

func testAccountNamedAsAgent(t *testing.T, o backendtest.Options) {
	w, one, _ := reading(t, o)
	w.Create("tg")
	l, err := read(t.Context(), one, holderOne, 0)
	l = backendtest.Must(t, l, err)
	if _, err := w.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "tg", Force: true}); err != nil {
		t.Fatal(err)
	}
	if now := w.Held(lease.ChannelResource("tg")); now.GetToken() != l.GetToken() {
		t.Errorf("%v", now)
	}
	if _, err := one.Leases.RenewLease(t.Context(), &registryv1.RenewLeaseRequest{Resource: l.GetResource(), Token: l.GetToken(), Holder: holderOne}); err != nil {
		t.Error(err)
	}
}
