package journal

import (
	"context"
	"strconv"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const processColumns = "id, thread, step_key, token, state, exit, tail, seen, started_at, ended_at, session_key, event"

// loadProcesses queues the read of the newest processes of the agent for which a condition holds;
// its args are from $2.
func loadProcesses(tx *unit.Tx, where string, args []any, out *[]store.Process) {
	tx.ReadRaw("SELECT "+processColumns+" FROM process WHERE agent_id = $1 AND "+where+" ORDER BY started_at DESC, id LIMIT "+strconv.Itoa(store.MaxProcesses),
		append([]any{tx.Agent}, args...), func(scan func(...any) error) error {
			var p store.Process
			var token, started, ended int64
			var state string
			err := scan(&p.ID, &p.Thread, &p.StepKey, &token, &state, &p.Exit, &p.Tail, &p.Seen, &started, &ended, &p.SessionKey, &p.Event)
			p.Token, p.State, p.StartedAt, p.EndedAt = uint64(token), store.ProcessState(state), store.FromMillis(started), store.FromMillis(ended)
			*out = append(*out, p)
			return err
		})
}

// openProcess holds of a process that is not over.
const openProcess = "state IN ('starting', 'running')"

// loadRunning queues the question whether a process is not over.
func loadRunning(tx *unit.Tx, running *bool) {
	tx.ReadRaw("SELECT EXISTS (SELECT 1 FROM process WHERE agent_id = $1 AND "+openProcess+")", []any{tx.Agent}, func(scan func(...any) error) error {
		return scan(running)
	})
}

// loadLost queues the read of processes of leases before that of the transaction.
func loadLost(tx *unit.Tx, out *[]store.Process) {
	loadProcesses(tx, openProcess+" AND token < $2", []any{int64(tx.Fence.Token)}, out)
}

// lose gives processes up, the oldest first.
func lose(tx *unit.Tx, list []store.Process) {
	for n := len(list) - 1; n >= 0; n-- {
		save, push := machine.LostProcess(tx.Agent, list[n], tx.Time)
		saveProcess(tx, save, push)
	}
}

func saveProcess(tx *unit.Tx, p store.Process, push *store.NewEvent) {
	if push != nil {
		e := tx.Insert(*push)
		SaveOrigin(tx, e.ID, *push.Origin)
		tx.Dedupe(machine.ProcessKey(p), e.ID, 0)
	}
	tx.ExecRaw("INSERT INTO process(agent_id, "+processColumns+`) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13)
		ON CONFLICT (agent_id, id) DO UPDATE SET state = excluded.state, exit = excluded.exit, tail = excluded.tail,
			seen = excluded.seen, ended_at = excluded.ended_at`,
		tx.Agent, p.ID, p.Thread, p.StepKey, int64(p.Token), string(p.State), p.Exit, p.Tail, p.Seen,
		store.Millis(p.StartedAt), store.Millis(p.EndedAt), p.SessionKey, p.Event)
}

// ProcessStep stores how far a process got, and pushes the event at its end.
type ProcessStep struct {
	p       store.Process
	found   []store.Process
	running int64 // others that are not over
	in      machine.Inbox
	Out     store.RecordedProcess
}

// Process is a step.
func Process(p store.Process) *ProcessStep { return &ProcessStep{p: p} }

// Load reads what is stored of it.
func (s *ProcessStep) Load(tx *unit.Tx) {
	s.found = nil
	loadProcesses(tx, "id = $2", []any{s.p.ID}, &s.found)
	tx.ReadRaw("SELECT count(*) FROM process WHERE agent_id = $1 AND id <> $2 AND "+openProcess, []any{tx.Agent, s.p.ID}, func(scan func(...any) error) error {
		return scan(&s.running)
	})
}

// Decide writes.
func (s *ProcessStep) Decide(ctx context.Context, tx *unit.Tx) error {
	beginInbox(tx, &s.in)
	s.Out = store.RecordedProcess{Acked: tx.Acked}
	var old *store.Process
	if len(s.found) > 0 {
		old, s.Out.Process = &s.found[0], s.found[0]
	}
	save, push, err := machine.Process(tx.Agent, old, s.p, tx.Fence.Token, tx.Time)
	s.Out.Running = s.running > 0 || old != nil && !old.State.Ended()
	if err != nil || save == nil {
		return err
	}
	s.Out.Running = s.running > 0 || !save.State.Ended()
	if old == nil { // old rows go where the new ones come from
		tx.ExecRaw("DELETE FROM process WHERE agent_id = $1 AND ended_at > 0 AND ended_at < $2", tx.Agent, tx.Time.Add(-store.ProcessKeep).UnixMilli())
	}
	saveProcess(tx, *save, push)
	s.Out.Process, s.Out.Pushed = *save, push != nil
	if !save.State.Ended() || s.running > 0 {
		return nil
	}
	// What waited for its end does not any more; a new event does.
	if err := readFirstOpen(ctx, tx, &s.in); err != nil {
		return err
	}
	s.in.Running = false
	s.Out.Acked = saveInbox(tx, &s.in)
	return nil
}

// ProcessesStep answers the processes of a conversation, newest first.
type ProcessesStep struct {
	thread, id string
	Out        []store.Process
}

// Processes is a view of all, or of one id when it is not empty.
func Processes(threadID, id string) *ProcessesStep { return &ProcessesStep{thread: threadID, id: id} }

// Load reads them.
func (s *ProcessesStep) Load(tx *unit.Tx) {
	s.Out = nil
	loadProcesses(tx, "$2 IN ('', thread) AND $3 IN ('', id)", []any{s.thread, s.id}, &s.Out)
}

// Decide has nothing to decide.
func (s *ProcessesStep) Decide(context.Context, *unit.Tx) error { return nil }
