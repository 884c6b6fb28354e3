package machine

import (
	"crypto/sha256"

	"github.com/oklog/ulid/v2"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// openSession decides which epoch of the conversation the event of a claim belongs to, and changes what
// the event is to change, before it is recorded. A repeated claim does not come here: its event is recorded.
func openSession(t *Thread, b store.Begin) {
	openEpoch(t, b)
	if s := b.Session.Patch.Apply(*t.Session); s != *t.Session {
		t.Session, t.SessionSet = &s, true
	}
}

func openEpoch(t *Thread, b store.Begin) {
	reason, by := epochReason(t, *b.Session)
	switch s := t.Session; {
	case s == nil:
		t.Session = &store.Session{Key: b.Session.Key}
	case reason == "" && !s.Archived && s.Pending == "" && s.Epoch != "":
		return
	default:
		changed := *s
		t.Session = &changed
	}
	s := t.Session
	t.SessionSet, s.Archived, s.Pending, s.PendingBy = true, false, "", ""
	if reason == "" && s.Epoch != "" {
		return
	}
	previous := s.Epoch
	s.Epoch, s.StartedAt = epochID(t, b.Key), store.FromMillis(t.Now.UnixMilli())
	if reason != "" {
		s.EpochFrom = t.record(b.Key+":session", thread.SubtypeSession, epochContent(s.Epoch, previous, reason, by))
	}
}

// epochReason is why a new epoch begins with the next event, and who asked for it; empty: it
// belongs to the one that there is. Before the first event nothing has to be left behind.
func epochReason(t *Thread, b store.BeginSession) (reason, by string) {
	switch s := t.Session; {
	case t.Head == 0:
		return "", ""
	case b.Reason != "":
		return b.Reason, b.By
	case s != nil && s.Pending != "":
		return s.Pending, s.PendingBy
	case t.LastAt.IsZero():
	case t.LastAt.Before(b.Before):
		return store.EpochDaily, ""
	case b.Idle > 0 && t.Now.Sub(t.LastAt) >= b.Idle:
		return store.EpochIdle, ""
	}
	return "", ""
}

// epochID is a ULID of the time, and of the turn that begins the epoch: the decision stays a
// function of its rows.
func epochID(t *Thread, turn string) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(t.Now)) // fails after the year 10889
	sum := sha256.Sum256([]byte(t.UUID + " " + turn))
	_ = id.SetEntropy(sum[:10])
	return id.String()
}

func epochContent(epoch, previous, reason, by string) string {
	b := thread.AppendString([]byte(`{"session_id":`), epoch)
	b = thread.AppendString(append(b, `,"previous":`...), previous)
	b = thread.AppendString(append(b, `,"reason":`...), reason)
	b = thread.AppendString(append(b, `,"by":`...), by)
	return string(append(b, '}'))
}
