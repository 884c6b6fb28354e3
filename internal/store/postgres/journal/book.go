package journal

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/outbox"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// book is what a step has read of a turn, and what it has made of it since: what a
// step writes is queued and entered here, so that nothing has to be read again. The
// thread's row is held from before the reads until the commit: they stay true.
type book struct {
	key   string // of the turn
	turns map[string]turnRow
	steps []store.Step     // as far as they were asked for, in order
	used  map[string]int64 // ids of events by dedupe key
	front outbox.Front
}

// turnRow is a turn as the state machine reads it.
type turnRow struct {
	found                       bool
	state                       string
	fate                        store.Fate
	crashes, errors             int
	notBefore, waitingSince     int64
	inboundID, replyID, errorID int64
	leader                      string
}

const (
	ofThread    = "agent_id = $1 AND thread_id = $2"
	turnColumns = "key, state, fate, crash_attempts, error_attempts, not_before, waiting_since, inbound_id, reply_id, error_id, leader"
	stepColumns = "seq, kind, key, request_sha256, class, state, name, call_id, arguments, result, input, output, cached_input, reasoning, duration_us, recorded_at, cache_write"
)

// each are the rows of a table under the keys $3, each found by itself: the plan for a
// list may be to walk through the thread, when threads were short as it was made.
func each(table string) string {
	return "unnest($3::text[]) AS wanted CROSS JOIN LATERAL (SELECT * FROM " + table + " WHERE " + ofThread + " AND key = wanted OFFSET 0) AS found"
}

func open(key string) book {
	return book{key: key, turns: map[string]turnRow{}, used: map[string]int64{}}
}

func (b *book) turn() turnRow { return b.turns[b.key] }

// set enters the turn as it is now.
func (b *book) set(key string, t turnRow) {
	t.found = true
	b.turns[key] = t
}

const oneTurn = "SELECT " + turnColumns + " FROM turn WHERE " + ofThread + " AND key = $3"

// loadTurn reads the turn alone.
func (b *book) loadTurn(tx *unit.Tx) { tx.Read(oneTurn, []any{b.key}, b.addTurn) }

// loadLed reads the turn and those that it leads.
func (b *book) loadLed(tx *unit.Tx) {
	tx.Read(oneTurn+" UNION ALL SELECT "+turnColumns+" FROM turn WHERE "+ofThread+" AND leader = $3 AND leader <> ''", []any{b.key}, b.addTurn)
}

// loadTurns reads those of keys.
func (b *book) loadTurns(tx *unit.Tx, keys []string) {
	if len(keys) > 0 {
		tx.Read("SELECT "+turnColumns+" FROM "+each("turn"), []any{keys}, b.addTurn)
	}
}

func (b *book) addTurn(scan func(...any) error) error {
	var key string
	t := turnRow{found: true}
	var fate string
	err := scan(&key, &t.state, &fate, &t.crashes, &t.errors, &t.notBefore, &t.waitingSince, &t.inboundID, &t.replyID, &t.errorID, &t.leader)
	t.fate = store.Fate(fate)
	b.turns[key] = t
	return err
}

// loadSteps reads all steps of the turn.
func (b *book) loadSteps(tx *unit.Tx) {
	tx.Read("SELECT "+stepColumns+" FROM step WHERE "+ofThread+" AND turn = $3 ORDER BY seq, key", []any{b.key}, func(scan func(...any) error) error {
		s, err := scanStep(scan)
		b.steps = append(b.steps, s)
		return err
	})
}

// loadStates reads what the given steps have come to, and who has joined the turn;
// the results of the others stay where they are, they may be large.
func (b *book) loadStates(tx *unit.Tx, list []store.Step, joined bool) {
	if len(list) == 0 && !joined {
		return
	}
	keys := make([]string, len(list))
	for i, s := range list {
		keys[i] = s.Key
	}
	or := ""
	if joined {
		or = " OR kind = '" + store.StepSteer + "'"
	}
	tx.Read("SELECT seq, kind, key, state, CASE WHEN kind = '"+store.StepSteer+"' THEN result END FROM step WHERE "+ofThread+" AND turn = $3 AND (key = ANY($4)"+or+") ORDER BY seq, key",
		[]any{b.key, keys}, func(scan func(...any) error) error {
			var s store.Step
			err := scan(&s.Seq, &s.Kind, &s.Key, &s.State, &s.Result)
			b.steps = append(b.steps, s)
			return err
		})
}

// loadUsed reads which events stand under dedupe keys.
func (b *book) loadUsed(tx *unit.Tx, keys ...string) {
	switch len(keys) {
	case 0:
		return
	case 1:
		tx.Read(unit.Deduped, []any{keys[0]}, func(scan func(...any) error) error {
			var id int64
			err := scan(&id)
			b.used[keys[0]] = id
			return err
		})
		return
	}
	tx.Read("SELECT key, event_id FROM "+each("dedupe"), []any{keys}, func(scan func(...any) error) error {
		var key string
		var id int64
		err := scan(&key, &id)
		b.used[key] = id
		return err
	})
}

func scanStep(scan func(...any) error) (s store.Step, err error) {
	var us, at int64
	err = scan(&s.Seq, &s.Kind, &s.Key, &s.RequestSHA256, &s.Class, &s.State, &s.Name, &s.CallID, &s.Arguments, &s.Result,
		&s.Usage.Input, &s.Usage.Output, &s.Usage.CachedInput, &s.Usage.Reasoning, &us, &at, &s.Usage.CacheWrite)
	s.Duration, s.RecordedAt = time.Duration(us)*time.Microsecond, store.FromMillis(at)
	return s, err
}

// once appends an event unless its key was used; it answers the id of then or now.
func (b *book) once(tx *unit.Tx, key string, n store.NewEvent) (id int64, fresh bool) {
	if id := b.used[key]; id != 0 {
		return id, false
	}
	id = tx.Insert(n).ID
	tx.Dedupe(key, id, tx.Fence.Token)
	b.used[key] = id
	return id, true
}

// say appends an event of the agent and the row that will deliver it.
func (b *book) say(tx *unit.Tx, key, content string, w outbox.Way) int64 {
	if id := b.used[key]; id != 0 {
		return id
	}
	ev := tx.Insert(store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: content})
	tx.Dedupe(key, ev.ID, tx.Fence.Token)
	b.used[key] = ev.ID
	b.front.Put(tx, ev, w)
	return ev.ID
}

// record appends a record event of the agent once.
func (b *book) record(tx *unit.Tx, key, subtype, content string) int64 {
	id, _ := b.once(tx, key, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &subtype, Content: content})
	return id
}

// put journals steps: a new one is inserted, an intent becomes done or in doubt, and
// what is done stays as it is. It tells whether that was progress.
func (b *book) put(tx *unit.Tx, list []store.Step, toolcalls map[string]string) (fresh bool) {
	for _, s := range list {
		if b.putStep(tx, s) {
			// That a program was called is no progress; what its tools did is.
			fresh = fresh || s.Kind != store.StepModel || s.Class == ""
		}
		if content, ok := toolcalls[s.Key]; ok {
			b.record(tx, b.key+":"+s.Key, thread.SubtypeToolcall, content)
		}
	}
	return fresh
}

func (b *book) putStep(tx *unit.Tx, s store.Step) (changed bool) {
	now := tx.Time.UnixMilli()
	i := slices.IndexFunc(b.steps, func(o store.Step) bool { return o.Key == s.Key })
	if i < 0 {
		tx.Exec("INSERT INTO step(agent_id, thread_id, turn, "+stepColumns+") VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20)",
			b.key, s.Seq, s.Kind, s.Key, s.RequestSHA256, s.Class, s.State, s.Name, s.CallID, s.Arguments, s.Result,
			s.Usage.Input, s.Usage.Output, s.Usage.CachedInput, s.Usage.Reasoning, s.Duration.Microseconds(), now, s.Usage.CacheWrite)
		s.Duration, s.RecordedAt = s.Duration.Truncate(time.Microsecond), store.FromMillis(now)
		b.steps = append(b.steps, s)
		slices.SortFunc(b.steps, func(x, y store.Step) int {
			return cmp.Or(cmp.Compare(x.Seq, y.Seq), strings.Compare(x.Key, y.Key))
		})
		return true
	}
	if b.steps[i].State != store.StepIntent || s.State == store.StepIntent {
		return false
	}
	tx.Exec("UPDATE step SET state = $5, result = $6, duration_us = $7, recorded_at = $8 WHERE "+ofThread+" AND turn = $3 AND key = $4",
		b.key, s.Key, s.State, s.Result, s.Duration.Microseconds(), now)
	b.steps[i].State, b.steps[i].Result = s.State, s.Result
	return true
}
