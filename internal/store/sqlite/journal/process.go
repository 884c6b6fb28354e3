package journal

import (
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

const processColumns = "id, thread, step_key, token, state, exit, tail, seen, started_at, ended_at, session_key, event"

// openProcess are processes that are not over.
const openProcess = "state IN ('starting','running')"

// RecordProcess stores how far a process got, and pushes the event at its end.
func RecordProcess(tx *db.Tx, agent string, token uint64, p store.Process) (out store.RecordedProcess, err error) {
	found, err := processes(tx, "id = ?", p.ID)
	if err != nil {
		return out, err
	}
	var old *store.Process
	if len(found) > 0 {
		old, out.Process = &found[0], found[0]
	}
	now := time.Now()
	save, push, err := machine.Process(agent, old, p, token, now)
	if err != nil {
		return out, err
	}
	if save != nil && old == nil {
		if err := tx.MakeProcesses(); err != nil {
			return out, err
		}
		// Old rows go where the new ones come from.
		if _, err := tx.Exec("DELETE FROM x_process WHERE ended_at > 0 AND ended_at < ?", now.Add(-store.ProcessKeep).UnixMilli()); err != nil {
			return out, err
		}
	}
	if save != nil {
		out.Process, out.Pushed = *save, push != nil
		if err := saveProcess(tx, *save, push); err != nil {
			return out, err
		}
	}
	in, err := loadInbox(tx)
	if out.Running = in.Running; err == nil {
		out.Acked, _, err = saveInbox(tx, &in) // what waited for its end does not any more
	}
	return out, err
}

// runs reports whether a process is not over.
func runs(tx *db.Tx) (bool, error) {
	if has, err := tx.HasProcesses(); !has || err != nil {
		return false, err
	}
	return tx.Row("SELECT 1 FROM x_process WHERE "+openProcess+" LIMIT 1", nil, new(int64))
}

// loseProcesses gives up the processes of leases before a token, and reports whether there were any.
func loseProcesses(tx *db.Tx, agent string, token uint64) (lost bool, err error) {
	list, err := processes(tx, openProcess+" AND token < ?", int64(token))
	for _, p := range list {
		if err != nil {
			break
		}
		save, push := machine.LostProcess(agent, p, time.Now())
		err = saveProcess(tx, save, push)
	}
	return len(list) > 0, err
}

func saveProcess(tx *db.Tx, p store.Process, push *store.NewEvent) error {
	if push != nil {
		e, err := tx.Insert(*push)
		if err != nil {
			return err
		}
		if err := SaveOrigin(tx, e.ID, *push.Origin); err != nil {
			return err
		}
		if err := tx.Dedupe(machine.ProcessKey(p), e.ID, 0); err != nil {
			return err
		}
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO x_process("+processColumns+") VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
		p.ID, p.Thread, p.StepKey, int64(p.Token), string(p.State), p.Exit, p.Tail, p.Seen,
		store.Millis(p.StartedAt), store.Millis(p.EndedAt), p.SessionKey, p.Event)
	return err
}

// Processes answers those of a conversation, newest first.
func Processes(tx *db.Tx, threadID, id string) ([]store.Process, error) {
	out, err := processes(tx, "? IN ('', thread) AND ? IN ('', id)", threadID, id)
	slices.Reverse(out)
	return out, err
}

// processes answers the newest for which a condition holds, oldest first.
func processes(tx *db.Tx, where string, args ...any) (out []store.Process, err error) {
	if has, err := tx.HasProcesses(); !has || err != nil {
		return nil, err
	}
	err = tx.Each("SELECT "+processColumns+" FROM x_process WHERE "+where+" ORDER BY started_at DESC, id LIMIT ?", append(args, store.MaxProcesses), func(scan func(...any) error) error {
		var p store.Process
		var token, started, ended int64
		var state string
		if err := scan(&p.ID, &p.Thread, &p.StepKey, &token, &state, &p.Exit, &p.Tail, &p.Seen, &started, &ended, &p.SessionKey, &p.Event); err != nil {
			return err
		}
		p.Token, p.State, p.StartedAt, p.EndedAt = uint64(token), store.ProcessState(state), store.FromMillis(started), store.FromMillis(ended)
		out = append(out, p)
		return nil
	})
	slices.Reverse(out)
	return out, err
}

// EraseProcesses forgets what turns have started. The agent is at rest: none of it runs.
func EraseProcesses(tx *db.Tx, turns []string) error {
	if has, err := tx.HasProcesses(); !has || err != nil {
		return err
	}
	for _, key := range turns {
		if _, err := tx.Exec("DELETE FROM x_process WHERE substr(step_key, 1, length(?1) + 1) = ?1 || ':'", key); err != nil {
			return err
		}
	}
	return nil
}
