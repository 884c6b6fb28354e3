package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/store"
)

// dissolveAfter is the number of crash attempts from which a leader that has made no
// progress goes on without the members of its claim: one of them may be what kills the
// process, and they must not die with it.
const dissolveAfter = 3

// SteerNeeds are the rows that Steer needs to add members to a running turn.
func SteerNeeds(s store.Steer) Needs {
	n := Needs{Turns: []string{s.Key}, Turn: s.Key, Steps: []string{s.Step}}
	n.members(s.Members)
	return n
}

// Steer adds members to a running turn and returns the step that holds them;
// store.ErrNoTurn.
func Steer(t *Thread, s store.Steer) (store.Step, error) {
	r := t.turn(s.Key)
	switch {
	case r == nil:
		return store.Step{}, store.ErrNoTurn
	case r.State == store.TurnDone:
		return store.Step{}, nil
	}
	return addMembers(t, s)
}

// addMembers records the members as events of the thread, each under its leader, and the step
// that holds them: all of it or nothing. An event that the thread knows already has a
// turn of its own, and so have those after it. Without members there is no step.
func addMembers(t *Thread, s store.Steer) (store.Step, error) {
	if old := t.step(s.Key, s.Step); old != nil {
		return old.Step, nil
	}
	var added store.MemberMessages
	for _, m := range s.Members {
		if r := t.turn(m.Key); r != nil && r.Leader == s.Key {
			continue // it is a member already
		} else if r != nil {
			break
		}
		id, _ := recordInbound(t, m.Key, m.Event)
		t.addTurn(Turn{Key: m.Key, InboxID: m.Event.ID, State: store.TurnClaimed, Leader: s.Key, InboundID: id, ClaimedAt: t.Now.UnixMilli()})
		added.Messages = append(added.Messages, store.MemberMessage{
			Key: m.Key, InboxID: m.Event.ID, EventID: id, CreatedAt: m.Event.CreatedAt, Source: m.Event.Source, Content: m.Event.Content,
		})
	}
	if len(added.Messages) == 0 {
		return store.Step{}, nil
	}
	result, err := json.Marshal(added)
	if err != nil {
		return store.Step{}, fmt.Errorf("encode members: %w", err)
	}
	st := store.Step{Seq: s.Seq, Kind: store.StepSteer, Key: s.Step, State: store.StepDone, Result: result}
	t.put(s.Key, st)
	return st, nil
}

// DecodeMembers decodes the result of a steer step: the members that it added, whether or
// not they have left the turn since.
func DecodeMembers(result []byte) (store.MemberMessages, error) {
	var j store.MemberMessages
	if err := json.Unmarshal(result, &j); err != nil {
		return j, fmt.Errorf("decode members: %w", err)
	}
	return j, nil
}

// members are the current members of a turn.
func members(t *Thread, leader string) ([]store.MergedMember, error) {
	var out []store.MergedMember
	for _, s := range t.Steps {
		if s.Turn != leader || s.Kind != store.StepSteer || s.Change == Deleted {
			continue
		}
		j, err := DecodeMembers(s.Result)
		if err != nil {
			return nil, err
		}
		for _, m := range j.Messages {
			if r := t.turn(m.Key); r != nil && r.Leader == leader {
				out = append(out, store.MergedMember{InboxID: m.InboxID, Key: m.Key})
			}
		}
	}
	return out, nil
}

// endMembers finishes the members of a turn with it, but for those that have a fate. A turn
// without an answer (dead, aborted) has no members: they are tried again, each alone.
func endMembers(t *Thread, leader string, fate store.Fate) (merged []store.MergedMember, err error) {
	list, err := members(t, leader)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		r := t.turn(m.Key)
		switch {
		case r.State == store.TurnDone:
			continue
		case fate == store.FateDead || fate == store.FateAborted:
			r.Leader, r.State = "", store.TurnWaiting
		default:
			r.State, r.Fate, r.FinishedAt, r.Error = store.TurnDone, store.FateMerged, t.Now.UnixMilli(), ""
			merged = append(merged, m)
		}
		r.touch()
	}
	return merged, nil
}

// dissolve releases the members of the claim, as long as nothing was sent to them: what was said in their files may be
// known.
func dissolve(t *Thread, leader string) error {
	list := slices.DeleteFunc(t.steps(leader), func(s store.Step) bool { return s.Kind == store.StepTranscript })
	if len(list) != 1 || list[0].Key != store.StepCollect {
		return nil
	}
	if _, err := endMembers(t, leader, store.FateDead); err != nil {
		return err
	}
	t.step(leader, store.StepCollect).Change = Deleted
	return nil
}
