package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// dissolveAfter is the crash attempts from which a leader that has got nowhere
// goes on without those who joined it at its claim: one of them may be what
// kills the process, and they are not to die with it.
const dissolveAfter = 3

// SteerStep puts members into a running turn.
type SteerStep struct {
	s    store.Steer
	book book
	Out  store.Step
}

// Steer makes the step.
func Steer(s store.Steer) *SteerStep { return &SteerStep{s: s, book: open(s.Key)} }

// Load queues the reads.
func (s *SteerStep) Load(tx *unit.Tx) {
	var in, turns []string
	for _, m := range s.s.Members {
		in, turns = append(in, m.Key+":in"), append(turns, m.Key)
	}
	s.book.loadLed(tx)
	s.book.loadTurns(tx, turns)
	s.book.loadSteps(tx)
	s.book.loadUsed(tx, in...)
}

// Decide queues the writes; store.ErrNoTurn.
func (s *SteerStep) Decide(_ context.Context, tx *unit.Tx) (err error) {
	t := s.book.turn()
	if !t.found {
		return store.ErrNoTurn
	}
	if t.state != store.TurnDone {
		s.Out, err = s.book.join(tx, s.s)
	}
	return err
}

// join records the members as events of the thread, each under its leader, and
// the step that holds them: all of it or nothing. An event that the thread knows
// already has a turn of its own, and so have those after it. No member: no step.
func (b *book) join(tx *unit.Tx, s store.Steer) (store.Step, error) {
	if i := slices.IndexFunc(b.steps, func(o store.Step) bool { return o.Key == s.Step }); i >= 0 {
		return b.steps[i], nil
	}
	var joined store.Joined
	for _, m := range s.Members {
		t := b.turns[m.Key]
		if t.found && t.leader == s.Key {
			continue // it joined before
		}
		if t.found {
			break
		}
		id, _ := b.recordInbound(tx, m.Key, m.Event)
		tx.Exec("INSERT INTO turn(agent_id, thread_id, key, inbox_id, state, leader, inbound_id, claimed_at) VALUES($1,$2,$3,$4,'claimed',$5,$6,$7)",
			m.Key, m.Event.ID, s.Key, id, tx.Time.UnixMilli())
		b.set(m.Key, turnRow{state: store.TurnClaimed, leader: s.Key, inboundID: id})
		joined.Messages = append(joined.Messages, store.JoinedMessage{
			Key: m.Key, InboxID: m.Event.ID, EventID: id, CreatedAt: m.Event.CreatedAt, Source: m.Event.Source, Content: m.Event.Content,
		})
	}
	if len(joined.Messages) == 0 {
		return store.Step{}, nil
	}
	result, err := json.Marshal(joined)
	if err != nil {
		return store.Step{}, fmt.Errorf("encode members: %w", err)
	}
	st := store.Step{Seq: s.Seq, Kind: store.StepSteer, Key: s.Step, State: store.StepDone, Result: result}
	b.putStep(tx, st)
	return st, nil
}

// led are those who joined the turn and have not left it.
func (b *book) led() ([]store.Merged, error) {
	var out []store.Merged
	for _, s := range b.steps {
		if s.Kind != store.StepSteer {
			continue
		}
		var j store.Joined
		if err := json.Unmarshal(s.Result, &j); err != nil {
			return nil, fmt.Errorf("decode members: %w", err)
		}
		for _, m := range j.Messages {
			if b.turns[m.Key].leader == b.key {
				out = append(out, store.Merged{InboxID: m.InboxID, Key: m.Key})
			}
		}
	}
	return out, nil
}

// end gives those who joined the turn their fate with it. Of a dead turn nobody is
// a part: they are tried by themselves.
func (b *book) end(tx *unit.Tx, fate store.Fate) ([]store.Merged, error) {
	members, err := b.led()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	if fate == store.FateDead {
		for _, m := range members {
			b.leave(tx, b.key, m.Key)
		}
		return nil, nil
	}
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.Key
	}
	tx.Exec("UPDATE turn SET state = 'done', fate = 'merged', finished_at = $4 WHERE "+ofThread+" AND key = ANY($3)", keys, tx.Time.UnixMilli())
	return members, nil
}

// leave frees a member of its leader and answers it as it is now.
func (b *book) leave(tx *unit.Tx, leader, key string) turnRow {
	t := b.turns[key]
	if t.leader == leader {
		t.leader, t.state = "", store.TurnWaiting
		tx.Exec("UPDATE turn SET leader = '', state = 'waiting' WHERE "+ofThread+" AND key = $3", key)
		b.set(key, t)
	}
	return t
}

// dissolve frees those who joined at the claim, while nothing was said to them.
func (b *book) dissolve(tx *unit.Tx) error {
	if len(b.steps) != 1 || b.steps[0].Key != store.StepCollect {
		return nil
	}
	if _, err := b.end(tx, store.FateDead); err != nil {
		return err
	}
	tx.Exec("DELETE FROM step WHERE "+ofThread+" AND turn = $3 AND key = $4", b.key, store.StepCollect)
	b.steps = nil
	return nil
}
