//go:build proof

package linearizability_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// op is one call: on a lease, or a push into the inbox.
type op struct {
	verb, resource, holder, request string
	token                           uint64
	key                             string // of a push
}

// answer is what came back. An unknown answer is none: the call may have had its
// effect, at any time since, or not.
type answer struct {
	unknown, ok bool
	token       uint64
	id          int64
}

// state is what one resource, or the inbox, is in.
type state struct {
	token           uint64
	held            bool
	holder, request string

	last int64
	keys string // "key=id;" in order
}

// model is a register of (token, holder) with conditional writes for each lease,
// and a log with idempotency keys for the inbox. Leases do not expire in the
// histories that it judges.
var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			r := o.Input.(op).resource
			parts[r] = append(parts[r], o)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() []any { return []any{state{}} },
	Step: func(before, input, output any) []any {
		s, in, out := before.(state), input.(op), output.(answer)
		want, after := apply(s, in)
		if out.unknown {
			return []any{s, after}
		}
		if out != want {
			return nil
		}
		return []any{after}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// apply is the model itself: what a call answers, and what it leaves.
func apply(s state, in op) (answer, state) {
	switch in.verb {
	case "push":
		if id, ok := find(s.keys, in.key); ok {
			return answer{ok: true, id: id}, s
		}
		s.last++
		s.keys += fmt.Sprintf("%s=%d;", in.key, s.last)
		return answer{ok: true, id: s.last}, s
	case "acquire":
		if s.held && s.holder == in.holder && s.request == in.request {
			return answer{ok: true, token: s.token}, s
		}
		if s.held {
			return answer{}, s
		}
		s = state{token: s.token + 1, held: true, holder: in.holder, request: in.request}
		return answer{ok: true, token: s.token}, s
	case "renew":
		return answer{ok: s.held && s.token == in.token && s.holder == in.holder}, s
	default: // a release is answered alike whether it was the current one's or not
		if s.token == in.token {
			s.held = false
		}
		return answer{ok: true}, s
	}
}

// find looks a key up in "key=id;key=id;".
func find(keys, key string) (int64, bool) {
	_, rest, ok := strings.Cut(";"+keys, ";"+key+"=")
	if !ok {
		return 0, false
	}
	text, _, _ := strings.Cut(rest, ";")
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}
