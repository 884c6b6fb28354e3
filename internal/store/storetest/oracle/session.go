package oracle

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// openSession decides which epoch a message belongs to, before it is
// recorded. A message makes a session, and takes one out of the archive.
func (m *Model) openSession(now time.Time, t *turn, b store.BeginSession) {
	m.openEpoch(now, t, b)
	*m.session = b.Patch.Apply(*m.session)
}

func (m *Model) openEpoch(now time.Time, t *turn, b store.BeginSession) {
	if m.session == nil {
		m.session = &store.Session{Key: b.Key}
	}
	s, reason, by := m.session, "", ""
	if n := m.conv.head(); n > 0 { // before the first event there is nothing to leave behind
		said := n // the newest that is no context
		for said > 0 && m.conv.events[said-1].Type == thread.TypeRecord && m.conv.events[said-1].Subtype != nil && *m.conv.events[said-1].Subtype == thread.SubtypeContext {
			said--
		}
		var last time.Time
		if said > 0 {
			last = thread.ParseStamp(m.conv.events[said-1].CreatedAt)
		}
		switch {
		case b.Reason != "":
			reason, by = b.Reason, b.By
		case s.Pending != "":
			reason, by = s.Pending, s.PendingBy
		case said == 0:
		case last.Before(b.Before):
			reason = store.EpochDaily
		case b.Idle > 0 && !now.Before(last.Add(b.Idle)):
			reason = store.EpochIdle
		}
	}
	s.Archived, s.Pending, s.PendingBy = false, "", ""
	if reason == "" && s.Epoch != "" {
		return
	}
	previous := s.Epoch
	var id ulid.ULID
	if err := id.SetTime(ulid.Timestamp(now)); err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(m.conv.uuid + " " + t.key)) // of what the turn is
	if err := id.SetEntropy(sum[:10]); err != nil {
		panic(err)
	}
	s.Epoch, s.StartedAt = id.String(), store.FromMillis(now.UnixMilli())
	if reason == "" {
		return
	}
	content, err := json.Marshal(struct {
		ID       string `json:"session_id"`
		Previous string `json:"previous"`
		Reason   string `json:"reason"`
		By       string `json:"by"`
	}{s.Epoch, previous, reason, by})
	if err != nil {
		panic(err)
	}
	s.EpochFrom, _ = m.conv.put(now, t.key+":session", self(thread.TypeRecord, "session", string(content)))
}

// Session answers that of the conversation.
func (m *Model) Session(context.Context, store.Ref) (store.Session, error) {
	switch {
	case !m.conv.exists:
		return store.Session{}, store.ErrNotFound
	case m.session == nil:
		return store.Session{}, store.ErrNoSession
	}
	return *m.session, nil
}

// PatchSession changes what the patch names.
func (m *Model) PatchSession(_ context.Context, _ store.Ref, p store.SessionPatch) (store.Session, error) {
	if !m.conv.exists {
		return store.Session{}, store.ErrNotFound
	}
	if m.session == nil {
		m.session = &store.Session{Key: p.Key}
	}
	s := m.session
	for to, from := range map[*string]*string{
		&s.Model: p.Model, &s.Thinking: p.Thinking, &s.Verbose: p.Verbose, &s.Reasoning: p.Reasoning, &s.QueueMode: p.QueueMode,
		&s.UsageFooter: p.UsageFooter, &s.Elevated: p.Elevated, &s.Title: p.Title, &s.Pending: p.Pending,
	} {
		if from != nil {
			*to = *from
		}
	}
	if p.Pending != nil {
		s.PendingBy = p.By
	}
	if p.Archived != nil {
		s.Archived = *p.Archived
	}
	return *s, nil
}
