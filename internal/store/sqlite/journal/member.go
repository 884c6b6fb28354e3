package journal

import (
	"encoding/json"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// dissolveAfter is the crash attempts from which a leader that has got nowhere
// goes on without those who joined it at its claim: one of them may be what
// kills the process, and they are not to die with it.
const dissolveAfter = 3

// Steer puts members into a running turn.
func Steer(tx *db.Tx, f store.Fence, s store.Steer) (store.Step, error) {
	t, err := loadTurn(tx, s.Key)
	switch {
	case err != nil:
		return store.Step{}, err
	case !t.found:
		return store.Step{}, store.ErrNoTurn
	case t.state == store.TurnDone:
		return store.Step{}, nil
	}
	return join(tx, f, s)
}

// join records the members as events of the thread, each under its leader, and
// the step that holds them: all of it or nothing. An event that the thread knows
// already has a turn of its own, and so have those after it. No member: no step.
func join(tx *db.Tx, f store.Fence, s store.Steer) (store.Step, error) {
	list, err := steps(tx, s.Key)
	if err != nil {
		return store.Step{}, err
	}
	for _, st := range list {
		if st.Key == s.Step {
			return st, nil
		}
	}
	var joined store.Joined
	for _, m := range s.Members {
		t, err := loadTurn(tx, m.Key)
		if err != nil {
			return store.Step{}, err
		}
		if t.found && t.leader == s.Key {
			continue // it joined before
		}
		if t.found {
			break
		}
		id, err := recordInbound(tx, f, store.Begin{Event: m.Event, Key: m.Key})
		if err != nil {
			return store.Step{}, err
		}
		if _, err := tx.Exec("INSERT INTO x_turn(key, inbox_id, state, leader, inbound_id, claimed_at) VALUES(?,?,'claimed',?,?,?)",
			m.Key, m.Event.ID, s.Key, id, time.Now().UnixMilli()); err != nil {
			return store.Step{}, err
		}
		joined.Messages = append(joined.Messages, store.JoinedMessage{
			Key: m.Key, InboxID: m.Event.ID, EventID: id, CreatedAt: m.Event.CreatedAt, Source: m.Event.Source, Content: m.Event.Content,
		})
	}
	if len(joined.Messages) == 0 {
		return store.Step{}, nil
	}
	result, err := json.Marshal(joined)
	if err != nil {
		return store.Step{}, err
	}
	st := store.Step{Seq: s.Seq, Kind: store.StepSteer, Key: s.Step, State: store.StepDone, Result: result}
	_, err = putSteps(tx, f, s.Key, []store.Step{st}, nil)
	return st, err
}

// led are those who joined a turn and have not left it.
func led(tx *db.Tx, leader string) ([]store.Merged, error) {
	var all []store.JoinedMessage
	err := tx.Each("SELECT result FROM x_step WHERE turn = ? AND kind = 'steer' ORDER BY seq", []any{leader}, func(scan func(...any) error) error {
		var result []byte
		var j store.Joined
		if err := scan(&result); err != nil {
			return err
		}
		if err := json.Unmarshal(result, &j); err != nil {
			return err
		}
		all = append(all, j.Messages...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []store.Merged
	for _, m := range all {
		t, err := loadTurn(tx, m.Key)
		if err != nil {
			return nil, err
		}
		if t.leader == leader {
			out = append(out, store.Merged{InboxID: m.InboxID, Key: m.Key})
		}
	}
	return out, nil
}

// end gives those who joined a turn their fate with it. Of a dead turn nobody is
// a part: they are tried by themselves.
func end(tx *db.Tx, leader string, fate store.Fate) ([]store.Merged, error) {
	members, err := led(tx, leader)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if fate == store.FateDead {
			err = leave(tx, leader, m.Key)
		} else {
			_, err = tx.Exec("UPDATE x_turn SET state = 'done', fate = 'merged', finished_at = ? WHERE key = ?", time.Now().UnixMilli(), m.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	if fate == store.FateDead {
		return nil, nil
	}
	return members, nil
}

// leave frees a member of its leader.
func leave(tx *db.Tx, leader, key string) error {
	_, err := tx.Exec("UPDATE x_turn SET leader = '', state = 'waiting' WHERE key = ? AND leader = ?", key, leader)
	return err
}

// dissolve frees those who joined at the claim, while nothing was said to them.
func dissolve(tx *db.Tx, leader string) error {
	list, err := steps(tx, leader)
	if err != nil || len(list) != 1 || list[0].Key != store.StepCollect {
		return err
	}
	if _, err := end(tx, leader, store.FateDead); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM x_step WHERE turn = ? AND key = ?", leader, store.StepCollect)
	return err
}
