package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/invariant"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// verdict is what --json prints.
type verdict struct {
	OK       bool    `json:"ok"`
	Kills    int     `json:"kills"`
	Messages int     `json:"messages"`
	Lost     int     `json:"lost"`
	Dup      int     `json:"duplicated"`
	LateMS   int64   `json:"late_ms_max"`
	Repeats  int     `json:"repeats_flagged"`
	Tools    bool    `json:"tools"`
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"`
	States   []row   `json:"states"`
	// Violations are broken promises, a line each; Home is where to look.
	Violations []string `json:"violations"`
	Home       string   `json:"home,omitempty"`
}

// row is what became of the messages that kills found in one state. A message
// that was hit in several counts in each.
type row struct {
	State   state `json:"state"`
	Kills   int   `json:"kills"`
	Hit     int   `json:"messages"`
	Lost    int   `json:"lost"`
	Dup     int   `json:"duplicated"`
	LateMS  int64 `json:"late_ms_max"` // from the kill to the arrival of the reply
	Repeats int   `json:"repeats_flagged"`
}

// fate is what became of one message.
type fate struct {
	lost, dup int
	repeats   int
	arrived   time.Time
}

type place struct {
	agent, thread string
	event         int64
}

// judge holds the accounts against what the sink saw and the tools did.
func (d *drill) judge(ctx context.Context) (*verdict, error) {
	v := &verdict{Messages: len(d.load.sent), Tools: d.tools, States: []row{}, Violations: []string{}}
	ran, err := d.runs()
	if err != nil {
		return nil, err
	}
	runs := map[string]int{}
	for _, key := range ran {
		runs[key]++
	}
	seen := map[place][]arrival{}
	o := invariant.Options{Drained: true, History: &invariant.History{}}
	for _, a := range d.sink.all() {
		p := place{a.Agent, a.Thread, a.EventID}
		seen[p] = append(seen[p], a)
		o.Sink = append(o.Sink, invariant.Arrival{Key: a.Key, MaybeDuplicate: a.MaybeDuplicate, Agent: a.Agent, Thread: a.Thread, EventID: a.EventID, At: a.at})
	}
	fates := map[*message]fate{}
	owners := map[place]*message{}
	for _, m := range d.load.sent {
		p := place{m.agent, m.turn.GetThreadId(), m.turn.GetReplyEventId()}
		if other := owners[p]; other != nil && p.event != 0 {
			v.violate("%s and %s have one reply", other.key(), m.key())
		}
		owners[p] = m
		f := v.fate(m, seen[p], runs[m.key()])
		fates[m] = f
		v.Lost, v.Dup, v.Repeats = v.Lost+f.lost, v.Dup+f.dup, v.Repeats+f.repeats
		if m.id > 0 {
			o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: m.agent, Key: m.key(), IDs: []int64{m.id}})
		}
	}
	for p := range seen {
		if owners[p] == nil {
			v.Dup++
			v.violate("event %d of %s %s arrived and answers no message", p.event, p.agent, p.thread)
		}
	}
	found, _, err := invariant.Check(ctx, d.site.Home, o)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if f.Severity == invariant.Violation {
			v.violate("%s", f)
		}
	}
	d.rows(v, fates)
	v.OK = v.Lost+v.Dup+len(v.Violations) == 0
	return v, nil
}

func (v *verdict) violate(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// fate judges one message: accepted, replied, arrived; under one key, repeated
// only with the flag; its tool ran once, or is in doubt.
func (v *verdict) fate(m *message, arrivals []arrival, ran int) fate {
	var f fate
	if m.id == 0 || m.turn.GetFate() != registry.Fate_FATE_REPLIED || len(arrivals) == 0 {
		f.lost = 1
		v.violate("%s (inbox event %d of %s) was not answered: fate %s, %d arrivals, %v", m.key(), m.id, m.agent, m.turn.GetFate(), len(arrivals), m.err)
		return f
	}
	f.arrived, f.repeats = arrivals[0].at, len(arrivals)-1
	plain := 0
	for _, a := range arrivals {
		if !a.MaybeDuplicate {
			plain++
		}
		if a.Key != arrivals[0].Key {
			f.dup = 1
			v.violate("the reply to %s was sent under two keys", m.key())
		}
	}
	if plain > 1 {
		f.dup = 1
		v.violate("the reply to %s was repeated without the flag", m.key())
	}
	least, most := 0, 0
	for _, s := range m.turn.GetSteps() {
		if s.GetKind() != registry.StepKind_STEP_KIND_TOOL {
			continue
		}
		most++
		if s.GetState() == registry.StepState_STEP_STATE_DONE {
			least++
		}
	}
	switch {
	case ran > most:
		f.dup = 1
		v.violate("the tool of %s ran %d times", m.key(), ran)
	case ran < least:
		f.lost = 1
		v.violate("the tool of %s is done in the journal and did not run", m.key())
	}
	return f
}

func (d *drill) rows(v *verdict, fates map[*message]fate) {
	for _, s := range states {
		r, kills := row{State: s}, map[time.Time]bool{}
		for _, m := range d.load.sent {
			at, hit := m.hits[s]
			if !hit {
				continue
			}
			f := fates[m]
			kills[at] = true
			r.Hit, r.Lost, r.Dup, r.Repeats = r.Hit+1, r.Lost+f.lost, r.Dup+f.dup, r.Repeats+f.repeats
			r.LateMS = max(r.LateMS, f.arrived.Sub(at).Milliseconds())
		}
		if r.Kills = len(kills); r.Kills > 0 {
			v.States = append(v.States, r)
			v.LateMS = max(v.LateMS, r.LateMS)
		}
	}
}

func (v *verdict) print(e *command.Env) error {
	rows := v.States
	if len(rows) == 0 && !e.Data() { // every kill came between two messages
		rows = []row{{State: "at rest", Kills: v.Kills}}
	}
	t := screen.NewTable(e, "state at kill", "kills", "messages", "lost", "duplicated", "late (ms max)", "the peer saw").Data(v).Then(func() { v.summary(e) })
	return screen.List(t, rows, func(r row) []any {
		saw := "each reply once"
		if r.Repeats > 0 {
			saw = fmt.Sprintf("%d repeats, flagged, same key", r.Repeats)
		}
		return []any{r.State, r.Kills, r.Hit, r.Lost, r.Dup, r.LateMS, saw}
	})
}

func (v *verdict) summary(e *command.Env) {
	for _, what := range v.Violations {
		fmt.Fprintf(e.Out, "broken: %s\n", screen.Line(what))
	}
	word, color := "PASS", text.FgGreen
	if !v.OK {
		word, color = "FAIL", text.FgRed
	}
	fmt.Fprintf(e.Out, "%s: %s, %s, %d lost, %d duplicated, %s, %s (%.0f s, seed %d)\n", screen.Paint(e, color, word), command.Count(v.Kills, "kill"),
		command.Count(v.Messages, "message"), v.Lost, v.Dup, command.Count(v.Repeats, "flagged repeat"), command.Count(len(v.Violations), "broken promise"), v.Seconds, v.Seed)
	if v.Home != "" {
		e.Note("the home is kept in %s", v.Home)
	}
	if !v.Tools {
		e.Note("no programs can be run here (see 'agentctl doctor'), so no tool was drilled")
	}
}
