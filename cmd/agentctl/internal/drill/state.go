package drill

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
)

// state is where a message was when the services died.
type state string

// The states, in the order of a message's life.
const (
	pushing    state = "pushing"    // sent, not acknowledged, not in the inbox
	queued     state = "queued"     // in the inbox, not begun
	claimed    state = "claimed"    // begun and recorded in its thread, the model is asked
	thought    state = "thought"    // an answer of the model is in the journal
	tool       state = "tool"       // a tool was begun, its result is not in the journal
	toolDone   state = "tool done"  // a tool's result is in the journal
	replied    state = "replied"    // the reply is in the thread, not sent
	delivering state = "delivering" // the send was begun, its end is not in the journal
	sent       state = "sent"       // the send is in the journal, the fate not in the inbox
	finished   state = ""           // nothing was left to do
)

var states = []state{pushing, queued, claimed, thought, tool, toolDone, replied, delivering, sent}

// look notes for each message that was under way where the kill has found it.
// Nobody serves the home meanwhile.
func (l *load) look(ctx context.Context, at time.Time) error {
	home, err := snapshot.Read(ctx, l.site.Home, snapshot.Options{Live: true})
	if err != nil {
		return err
	}
	accounts := map[string]*account{}
	for _, a := range home.Agents {
		accounts[a.ID] = newAccount(a)
	}
	for _, m := range l.sent {
		a := accounts[m.agent]
		if a == nil {
			continue
		}
		if s := a.stateOf(m); s != finished {
			m.hits[s] = at
		}
	}
	return nil
}

// account is an agent's journal by inbox id.
type account struct {
	inbox *snapshot.DB
	fates map[int64]bool
	turns map[int64]snapshot.Turn
	steps map[string]snapshot.Step // the last of each turn
	sends map[int64]snapshot.Delivery
}

func newAccount(a *snapshot.Agent) *account {
	out := &account{a.Inbox, map[int64]bool{}, map[int64]snapshot.Turn{}, map[string]snapshot.Step{}, map[int64]snapshot.Delivery{}}
	for _, f := range a.Inbox.Fates {
		out.fates[f.ID] = true
	}
	for _, d := range a.Threads {
		sends := map[int64]snapshot.Delivery{}
		for _, s := range d.Deliveries {
			sends[s.EventID] = s
		}
		for _, t := range d.Turns {
			out.turns[t.InboxID] = t
			if s, ok := sends[t.ReplyID]; ok {
				out.sends[t.InboxID] = s
			}
		}
		for _, s := range d.Steps {
			out.steps[s.Turn] = s
		}
	}
	return out
}

func (a *account) stateOf(m *message) state {
	id := m.inboxID()
	if id == 0 { // it may be there, and only the answer was lost
		if id = a.inbox.Dedupe["push:"+m.key()].EventID; id == 0 {
			return pushing
		}
	}
	t, begun := a.turns[id]
	if !begun {
		return queued
	}
	if t.State == store.TurnDone {
		switch s := a.sends[id].State; {
		case s == store.DeliveryPending:
			return replied
		case s == store.DeliverySending:
			return delivering
		case !a.fates[id]:
			return sent
		}
		return finished
	}
	s, any := a.steps[t.Key]
	switch {
	case !any:
		return claimed
	case s.Kind == string(store.StepTool) && s.State == string(store.StepIntent):
		return tool
	case s.Kind == string(store.StepTool):
		return toolDone
	}
	return thought
}
