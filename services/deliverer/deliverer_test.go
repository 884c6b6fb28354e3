package deliverer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs/redact"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
	"github.com/theclaw/agents/services/deliverer/internal/delivery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answered is an error as it comes out of a gRPC client.
func answered(code codes.Code, reason string, retry time.Duration) error {
	f := fault.New(code, reason, "it said no", "")
	f.RetryAfter = retry
	return fault.Status(f).Err()
}

// TestPushFailures: a registry that is away or an inbox that is full spends no
// attempt; an agent that does not exist is dead at once.
func TestPushFailures(t *testing.T) {
	const secret = "hunter2hunter2"
	p := pusher{redactor: redact.New(secret)}
	for _, c := range []struct {
		err   error
		class channel.Class
		doubt bool
		retry time.Duration
	}{
		{answered(codes.NotFound, fault.AgentNotFound, 0), channel.Rejected, false, 0},
		{answered(codes.InvalidArgument, fault.EventTooLarge, 0), channel.Rejected, false, 0},
		{answered(codes.PermissionDenied, fault.SourceForbidden, 0), channel.Rejected, false, 0},
		{answered(codes.ResourceExhausted, fault.InboxFull, 5*time.Second), channel.Unavailable, false, 5 * time.Second},
		{answered(codes.FailedPrecondition, fault.AgentFailed, 0), channel.Unavailable, false, 0},
		{status.Error(codes.Unavailable, "dial unix /x: refused"), channel.Unavailable, true, awayWait},
		{status.Error(codes.DeadlineExceeded, ""), channel.Unavailable, true, awayWait},
		{answered(codes.Aborted, fault.LeaseLost, 0), channel.Interrupted, false, 0},
		{status.Error(codes.Internal, "oops "+secret), channel.Failed, false, 0},
	} {
		got := p.failure(t.Context(), c.err)
		if got.Class != c.class || got.InDoubt != c.doubt || got.RetryAfter != c.retry {
			t.Errorf("%v: %+v", c.err, got)
		}
		if got.What == "" || strings.Contains(got.What, secret) {
			t.Errorf("%v: says %q", c.err, got.What)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.failure(ended, status.Error(codes.Canceled, "")); got.Class != channel.Interrupted || !got.InDoubt {
		t.Errorf("our own end: %+v", got)
	}
}

// TestMeaning: what a holder has to know of the registry's answers.
func TestMeaning(t *testing.T) {
	for _, c := range []struct {
		err           error
		lost, refused bool
	}{
		{answered(codes.Aborted, fault.LeaseLost, 0), true, false},
		{answered(codes.NotFound, fault.ThreadNotFound, 0), false, true},
		{answered(codes.DataLoss, fault.DatabaseCorrupt, 0), false, true},
		{answered(codes.FailedPrecondition, fault.ReadOnly, 0), false, true},
		{answered(codes.ResourceExhausted, fault.DiskFull, 0), false, false},
		{answered(codes.Unauthenticated, fault.Unauthenticated, 0), false, false},
		{status.Error(codes.Unavailable, "away"), false, false},
	} {
		err := meaning(c.err)
		if errors.Is(err, lease.ErrLost) != c.lost || errors.Is(err, delivery.ErrRefused) != c.refused {
			t.Errorf("%v: %v", c.err, err)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v lost its cause", c.err)
		}
	}
}

// TestSettings: an absent outbound list means xgw, an empty one means nothing.
func TestSettings(t *testing.T) {
	j := journal{xgw: channel.XGW{Path: "/bin/xgw"}}
	if s := j.settings(&registryv1.BeginDeliveryResponse{}); s.Outbound != nil || s.Channels != nil || s.XGW.Path != "/bin/xgw" {
		t.Errorf("%+v", s)
	}
	if s := j.settings(&registryv1.BeginDeliveryResponse{OutboundSet: true}); s.Outbound == nil || len(s.Outbound) != 0 {
		t.Errorf("%+v", s)
	}
	s := j.settings(&registryv1.BeginDeliveryResponse{
		OutboundSet: true, Outbound: []*registryv1.OutboundRule{{ThreadPattern: "peers/**", Via: "hook"}},
		Channels: []*registryv1.ChannelConfig{{Name: "hook", Type: "webhook", Url: "https://example.org/x", Secret: "env:S", AllowPrivate: true}},
	})
	if s.Outbound[0] != (channel.Rule{ThreadPattern: "peers/**", Via: "hook"}) ||
		s.Channels["hook"] != (channel.Definition{Type: "webhook", URL: "https://example.org/x", Secret: "env:S", AllowPrivate: true}) {
		t.Errorf("%+v", s)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

// TestSecretsAreRedacted: a secret is known to the redactor once it was read.
func TestSecretsAreRedacted(t *testing.T) {
	d := Deps{Resolve: func(context.Context, string) (string, error) { return "s3cr3t-value", nil }}.withDefaults()
	if s, err := d.Redactor.Learn(d.Resolve)(t.Context(), "env:S"); err != nil || s != "s3cr3t-value" {
		t.Fatal(s, err)
	}
	if out := d.Redactor.Redact("it said s3cr3t-value"); strings.Contains(out, "s3cr3t") {
		t.Error(out)
	}
	if _, err := (Deps{}).withDefaults().Redactor.Learn(nil)(t.Context(), "env:S"); err == nil {
		t.Error("a secret without a resolver")
	}
}

// TestInfo shows what is down and since when it may be tried again.
func TestInfo(t *testing.T) {
	s := New(Config{}, Deps{Holder: "d1"})
	p, _ := s.breakers.Acquire(breaker.Key{Agent: "amy", Channel: "hook", Destination: "example.org"}, nil, nil)
	p.Record(&channel.Error{Class: channel.Unavailable, RetryAfter: breaker.Interval})
	info, err := s.GetDelivererInfo(t.Context(), &delivererv1.GetDelivererInfoRequest{})
	if err != nil || info.GetHolder() != "d1" || len(info.GetBreakers()) != 1 {
		t.Fatal(info, err)
	}
	if b := info.GetBreakers()[0]; b.GetChannel() != "amy/hook example.org" || b.GetState() != "open" || b.GetWait().AsDuration() > breaker.Interval {
		t.Errorf("%v", b)
	}
	if err := New(Config{}, Deps{}).Run(t.Context()); err == nil {
		t.Error("runs without a holder id")
	}
	if p := Policy(); len(p) != len(delivererv1.DelivererService_ServiceDesc.Methods) {
		t.Errorf("policy has %d methods", len(p))
	}
}
