package channels

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What its sender or an operator cannot correct by sending the message again is refused; what passes with one agent
// is later, which ends in a refusal; what stops the registry is an error of the call, which is repeated.
func TestOutcome(t *testing.T) {
	const refused, later = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER
	for _, c := range []struct {
		code   codes.Code
		reason string
		want   registryv1.AcceptOutcome // 0: an error of the call
	}{
		{codes.PermissionDenied, fault.PeerRefused, refused},
		{codes.InvalidArgument, fault.InvalidArgument, refused},
		{codes.FailedPrecondition, fault.RouteBroken, refused},
		{codes.FailedPrecondition, fault.ReadOnly, 0},
		{codes.FailedPrecondition, fault.ConfigInvalid, later},
		{codes.InvalidArgument, fault.ConfigInvalid, later},
		{codes.ResourceExhausted, fault.QuotaExceeded, later},
		{codes.Unavailable, fault.RegistryUnavailable, 0},
		{codes.ResourceExhausted, fault.InboxFull, later},
		{codes.NotFound, fault.AgentNotFound, later},
		{codes.NotFound, fault.ChannelNotFound, 0},
		{codes.DataLoss, fault.InvalidArgument, 0},
		{codes.DataLoss, fault.DatabaseCorrupt, later},
	} {
		got, err := outcome(fault.New(c.code, c.reason, "what", "fix"))
		if got.GetOutcome() != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%v %s: %v %v", c.code, c.reason, got, err)
		}
		if (got.GetRetryAfter().AsDuration() > 0) != (c.want == later) {
			t.Errorf("%v %s: again after %v", c.code, c.reason, got.GetRetryAfter())
		}
	}
	if _, err := outcome(errors.New("of no kind")); err == nil {
		t.Error("an error of no kind is an outcome")
	}
}
