package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/thread"
)

// An epoch is decided before the event, for one reason, and a repeat decides nothing.
func TestEpochs(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	known := func(s store.Session) *store.Session { s.Key, s.Epoch = "agent:a:main", "E1"; return &s }
	for _, c := range []struct {
		name    string
		session *store.Session
		last    time.Time
		begin   store.BeginSession
		reason  string // of a new epoch; empty: none
		by      string
		set     bool
	}{
		{name: "the first message", set: true},
		{name: "a conversation from before there were sessions", last: now.Add(-time.Hour), set: true},
		{name: "the same epoch", session: known(store.Session{}), last: now.Add(-time.Hour)},
		{name: "asked for", session: known(store.Session{Pending: store.EpochNew, PendingBy: "owner"}), last: now, reason: store.EpochNew, by: "owner", set: true},
		{name: "asked for before anything was said", session: known(store.Session{Pending: store.EpochNew}), set: true},
		{name: "by a command", session: known(store.Session{Pending: store.EpochArchive}), last: now, begin: store.BeginSession{Reason: store.EpochReset, By: "command", Idle: time.Nanosecond}, reason: store.EpochReset, by: "command", set: true},
		{name: "by a command, before anything was said", session: known(store.Session{}), begin: store.BeginSession{Reason: store.EpochNew, By: "command"}},
		{name: "a change by a command", session: known(store.Session{Model: "m"}), last: now, begin: store.BeginSession{Patch: store.SessionPatch{Model: new("n")}}, set: true},
		{name: "a change by a command that is none", session: known(store.Session{Model: "m"}), last: now, begin: store.BeginSession{Patch: store.SessionPatch{Model: new("m")}}},
		{name: "daily", session: known(store.Session{}), last: now.Add(-9 * time.Hour), begin: store.BeginSession{Before: now.Add(-8 * time.Hour)}, reason: store.EpochDaily, set: true},
		{name: "daily, not yet", session: known(store.Session{}), last: now.Add(-8 * time.Hour), begin: store.BeginSession{Before: now.Add(-8 * time.Hour)}},
		{name: "idle", session: known(store.Session{}), last: now.Add(-time.Hour), begin: store.BeginSession{Idle: time.Hour}, reason: store.EpochIdle, set: true},
		{name: "idle, not yet", session: known(store.Session{}), last: now.Add(-time.Hour + 1), begin: store.BeginSession{Idle: time.Hour}},
		{name: "daily before idle", session: known(store.Session{}), last: now.Add(-9 * time.Hour), begin: store.BeginSession{Before: now, Idle: time.Hour}, reason: store.EpochDaily, set: true},
		{name: "old and without a session", last: now.Add(-9 * time.Hour), begin: store.BeginSession{Before: now}, reason: store.EpochDaily, set: true},
		{name: "made by a setting", session: &store.Session{Key: "agent:a:main", Model: "m"}, last: now, set: true},
		{name: "a message ends the archive", session: known(store.Session{Archived: true}), last: now, set: true},
	} {
		th := machine.Thread{UUID: "u", Now: now, NextID: 7, Head: 6, Session: c.session, LastAt: c.last}
		if c.last.IsZero() {
			th.NextID, th.Head = 1, 0
		}
		c.begin.Key = "agent:a:main"
		b := store.Begin{Key: "k", Alone: true, Event: thread.Event{ID: 3, Source: "s", Type: thread.TypeMessage, Content: "hello"}, Session: &c.begin}
		out, err := machine.Begin(&th, b)
		if err != nil || out.Outcome != store.BeginGo || th.SessionSet != c.set || out.Session != th.Session {
			t.Errorf("%s: %v, %+v, set %v", c.name, err, out, th.SessionSet)
			continue
		}
		s, inbound := th.Session, th.Appended[len(th.Appended)-1]
		if inbound.Key != "k:in" || s.Key != "agent:a:main" || s.Archived || s.EpochFrom >= inbound.ID {
			t.Errorf("%s: %+v, %+v", c.name, s, inbound)
		}
		if c.reason == "" {
			if len(th.Appended) != 1 || c.session != nil && c.session.Epoch != "" && s.Epoch != "E1" || s.Epoch != "E1" && len(s.Epoch) != 26 {
				t.Errorf("%s: appended %+v, %+v", c.name, th.Appended, s)
			}
			continue
		}
		record := th.Appended[0]
		if len(th.Appended) != 2 || *record.Subtype != "session" || record.ID != s.EpochFrom || s.Pending != "" || len(s.Epoch) != 26 ||
			!strings.Contains(record.Content, `"reason":"`+c.reason+`","by":"`+c.by+`"`) || !strings.Contains(record.Content, s.Epoch) {
			t.Errorf("%s: appended %+v, %+v", c.name, th.Appended, s)
		}
		// Killed here: the same claim again, later, finds the event and changes no epoch.
		th.Now, th.SessionSet, th.Appended = now.Add(48*time.Hour), false, nil
		if again, err := machine.Begin(&th, b); err != nil || th.SessionSet || len(th.Appended) != 0 || again.Session.Epoch != s.Epoch {
			t.Errorf("%s, again: %v, %+v", c.name, err, th.Appended)
		}
	}
}

// The id of an epoch depends on its rows alone.
func TestEpochIDIsPure(t *testing.T) {
	epoch := func(uuid, key string, now time.Time) string {
		th := machine.Thread{UUID: uuid, Now: now, NextID: 1}
		out, err := machine.Begin(&th, store.Begin{Key: key, Event: thread.Event{ID: 1, Type: thread.TypeMessage}, Session: &store.BeginSession{Key: "k"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Session.Epoch
	}
	now := time.Now()
	first := epoch("u", "k", now)
	if first != epoch("u", "k", now) || first == epoch("v", "k", now) || first == epoch("u", "l", now) || first >= epoch("u", "k", now.Add(time.Second)) {
		t.Error("an epoch's id must depend on thread, turn and time")
	}
}
