package intake

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/channel"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// silent is a platform that does not answer.
type silent struct{ channel.Channel }

func (silent) Find(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A notice over an account whose platform does not answer takes noticeLimit, and is logged once however often it is
// tried: the person stays in the list.
func TestNoticeOfSilentPlatform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := NewDecisions(Deps{Logger: slog.New(slog.NewTextHandler(&log, nil)), live: newLive()})
		d.live.add(&Account{name: "tg", kind: channel.Type{Name: "telegram"}, out: silent{}, ctx: t.Context()})
		d.admitted.take(waits("bob", 1))
		a, start := d.admitted.list()[0], time.Now()
		for range 3 {
			d.admit(t.Context(), a)
		}
		if took := time.Since(start); took != 3*noticeLimit {
			t.Errorf("3 tries took %v, want %v", took, 3*noticeLimit)
		}
		if n := strings.Count(log.String(), "was not notified"); n != 1 || !d.admitted.has(a) {
			t.Errorf("logged %d times, in the list: %v; the log:\n%s", n, d.admitted.has(a), &log)
		}
	})
}

func waits(peer string, at int64) *registryv1.Pairing {
	return &registryv1.Pairing{Account: "tg", Type: "telegram", PeerId: peer, Notice: registryv1.PairingNotice_PAIRING_NOTICE_WAITING, At: timestamppb.New(time.Unix(at, 0))}
}

// The list has those whose notice waits, as the stream last said; one that was sent and is not reported stays when the
// stream begins again, so that it is not sent twice.
func TestAdmitted(t *testing.T) {
	l := newAdmitted()
	want := func(what string, people ...*admission) {
		t.Helper()
		got := l.list()
		same := len(got) == len(people)
		for i := range min(len(got), len(people)) {
			same = same && got[i] == people[i]
		}
		if !same {
			t.Errorf("%s: %v, want %v", what, got, people)
		}
	}
	l.take(waits("ann", 1))
	l.take(waits("bob", 1))
	l.take(waits("carl", 1))
	ann, bob := l.list()[0], l.list()[1]
	l.take(&registryv1.Pairing{Account: "tg", PeerId: "carl"})
	want("one waits no longer", ann, bob)
	l.take(waits("ann", 1))
	want("the same approval", ann, bob)
	l.settle(bob, true)
	l.begin()
	want("a new stream", bob)
	l.take(waits("ann", 2))
	l.take(waits("bob", 1))
	if l.has(ann) || !l.has(bob) || len(l.list()) != 2 {
		t.Errorf("after a new stream: %v", l.list())
	}
	l.take(waits("bob", 2))
	if l.has(bob) || l.list()[1].settled {
		t.Errorf("a later approval: %v", l.list())
	}
}
