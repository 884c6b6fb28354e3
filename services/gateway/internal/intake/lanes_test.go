package intake

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// refusing is a platform that refuses every notice.
type refusing struct{ channel.Channel }

func (refusing) Send(context.Context, channel.Message) (channel.Receipt, error) {
	return channel.Receipt{}, channel.Reject("", "it takes nothing", "")
}

// S2-17: the messages that wait in a conversation when an agent cannot take them are patient together: a hundred of them
// hold the places of their account no longer than one. Each is tried before it is refused: it may be for another agent.
func TestPatienceOfConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 4
		a := &Account{
			deps: Deps{Logger: slog.New(slog.DiscardHandler), Metrics: obs.NewGatewayMetrics(nil)}, ctx: t.Context(), out: refusing{},
			notices: notices{sent: map[refusal]time.Time{}}, lanes: map[string]*lane{},
		}
		stored, list := 0, []*item(nil)
		for range messages {
			list = append(list, &item{update: channel.Update{SessionID: "1"}, parts: []part{{stored: func() { stored++ }}}})
		}
		a.lanes["1"] = &lane{waiting: list[messages/2:]}
		list = list[:messages/2]
		began := time.Now()
		for lists := 0; lists < 2; {
			results := make([]*registryv1.AcceptedMessage, len(list))
			for n := range results {
				results[n] = &registryv1.AcceptedMessage{Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER, Reason: fault.InboxFull, RetryAfter: durationpb.New(5 * time.Second)}
			}
			done, wait := a.settle(list, make([]*registryv1.InboundMessage, len(list)), results, began)
			if done > 1 {
				t.Fatalf("%d were refused at a time: what is behind one that was not taken was not tried", done)
			}
			if list = list[done:]; len(list) == 0 {
				list = a.lanes["1"].waiting
				lists++
			}
			_ = pause.For(t.Context(), wait)
		}
		if took := time.Since(began); stored != messages || took != patience {
			t.Errorf("%d of %d were settled after %v, want %v", stored, messages, took, patience)
		}
	})
}
