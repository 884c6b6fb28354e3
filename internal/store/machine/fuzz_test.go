package machine_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/storetest/oracle"
)

// passes are how long it is until the next call.
var passes = []time.Duration{time.Millisecond, time.Millisecond, time.Second, time.Minute, 2 * time.Hour, 30 * time.Hour}

// maxCalls of a sequence: the account after each grows with what was made before.
const maxCalls = 32

// FuzzMachine makes random sequences of calls to rows, which package machine decides for,
// and to the oracle: after each call both must have given the same answer, and must give
// the same complete account. The first byte is the state of the matrix that a sequence
// begins in. Two bytes are one call: which one; about which event, how long it is until
// then, and how many times it is made.
func FuzzMachine(f *testing.F) {
	var states []oracle.State
	var inputs []oracle.Call
	for _, kind := range oracle.Kinds() {
		// No change of tokens, after which most calls are refused.
		calls := slices.DeleteFunc(kind.Inputs, func(c oracle.Call) bool { return strings.Contains(c.Name, " token") })
		for n := range kind.States {
			first := byte(len(states) + n)
			forth, back := []byte{first}, []byte{first} // through the calls of its kind
			for i := range min(maxCalls, len(calls)) {
				forth = append(forth, byte(len(inputs)+i), 0)
				back = append(back, byte(len(inputs)+(len(calls)-i+n)%len(calls)), 0)
			}
			f.Add(forth)
			f.Add(back)
		}
		states, inputs = append(states, kind.States...), append(inputs, calls...)
	}
	f.Fuzz(func(t *testing.T, calls []byte) {
		now := time.UnixMilli(1767225600000)
		clock := func() time.Time { return now }
		model := oracle.New("a", clock)
		p := pair{oracle.NewSide(newRows("a", clock), "a"), oracle.NewSide(model, "a")}
		for _, s := range []*oracle.Side{p.got, p.want} {
			if _, err := s.Ensure(t.Context(), store.Inbox("a"), ""); err != nil {
				t.Fatal(err)
			}
		}
		if len(calls) == 0 {
			return
		}
		state := states[int(calls[0])%len(states)]
		p.got.Subject, p.want.Subject = state.Subject, state.Subject
		for _, c := range state.Calls {
			p.same(t, c)
		}
		calls = calls[1:min(len(calls), 2*maxCalls+1)]
		for len(calls) >= 2 {
			c, how := inputs[int(calls[0])%len(inputs)], calls[1]
			calls = calls[2:]
			times := max(1, int(how)/(4*len(passes))-4)
			p.got.Subject, p.want.Subject = int64(how%4)+1, int64(how%4)+1
			for range times {
				now = now.Add(passes[int(how/4)%len(passes)])
				if impossible(model, p.want.Subject, c) {
					break
				}
				p.same(t, c)
				for _, q := range p.want.Questions(t.Context()) {
					p.same(t, q)
				}
				if t.Failed() {
					t.Fatalf("after %q about event %d at %v", c.Name, p.got.Subject, now)
				}
			}
		}
	})
}

// pair is what package machine decides for and the oracle.
type pair struct{ got, want *oracle.Side }

// impossible reports whether nobody makes such a call now: of the turn of a member only its
// leader has a claim, and so nothing is recorded under its own key.
func impossible(m *oracle.Model, id int64, c oracle.Call) bool {
	verb, _, _ := strings.Cut(c.Name, " ")
	return m.IsMember(id) && slices.Contains([]string{"record", "steer", "finish"}, verb)
}

// same makes a call to both and compares the answers.
func (p pair) same(t *testing.T, c oracle.Call) {
	t.Helper()
	got, errGot := c.Make(t.Context(), p.got)
	want, errWant := c.Make(t.Context(), p.want)
	if errGot == nil && errWant == nil && reflect.DeepEqual(got, want) {
		return
	}
	if g, w := oracle.Exact(got, errGot), oracle.Exact(want, errWant); g != w {
		t.Errorf("%s:%s", c.Name, differ(g, w))
	}
}

// differ shows two answers from where they differ.
func differ(got, want string) string {
	from, n := 0, min(len(got), len(want))
	for from < n && got[from] == want[from] {
		from++
	}
	from = max(0, strings.LastIndexAny(got[:from], ",{"))
	return "\n machine " + got[from:] + "\n oracle  " + want[from:]
}
