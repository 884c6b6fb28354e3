package lease

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

type leaseOp struct {
	verb, resource, holder, request string
	token                           uint64
}

type leaseResult struct {
	ok    bool
	token uint64
}

type leaseState struct {
	token           uint64
	held            bool
	holder, request string
}

// leaseModel is a register of (token, holder) with three conditional writes.
// Nothing expires in the history it judges.
var leaseModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, op := range history {
			res := op.Input.(leaseOp).resource
			parts[res] = append(parts[res], op)
		}
		var out [][]porcupine.Operation
		for _, p := range parts {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return leaseState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(leaseState), input.(leaseOp), output.(leaseResult)
		mine := s.held && s.holder == in.holder && s.request == in.request
		switch in.verb {
		case "acquire":
			switch {
			case mine:
				return out.ok && out.token == s.token, s
			case s.held:
				return !out.ok, s
			}
			return out.ok && out.token == s.token+1, leaseState{s.token + 1, true, in.holder, in.request}
		case "renew":
			return out.ok == (s.held && s.token == in.token && s.holder == in.holder), s
		case "check":
			return out.ok == (s.held && s.token == in.token), s
		default: // release
			if s.token != in.token || s.token == 0 {
				return !out.ok, s
			}
			s.held = false
			return out.ok, s
		}
	},
}

// Concurrent Acquire, Renew, Check and Release look as if each happened at one
// instant between its call and its answer.
func TestLinearizable(t *testing.T) {
	for round := range 10 {
		table := newTable(t, newLedger(), nil)
		var clock atomic.Int64
		var mu sync.Mutex
		var history []porcupine.Operation
		run := func(client int, in leaseOp) leaseResult {
			call := clock.Add(1)
			var out leaseResult
			var err error
			switch in.verb {
			case "acquire":
				var r Record
				r, err = table.Acquire(t.Context(), AcquireRequest{Resource: in.resource, Holder: in.holder, RequestID: in.request, TTL: time.Hour})
				out.token = r.Token
			case "renew":
				_, err = table.Renew(in.resource, in.holder, in.token)
			case "check":
				err = table.Check(in.resource, in.token)
			case "release":
				err = table.Release(t.Context(), in.resource, in.token)
			}
			out.ok = err == nil
			back := clock.Add(1)
			mu.Lock()
			defer mu.Unlock()
			history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back})
			return out
		}
		var wg sync.WaitGroup
		for c := range 6 {
			wg.Go(func() {
				holder := fmt.Sprint("h", c)
				last := map[string]uint64{}
				for i := range 40 {
					res := []string{"agent/a", "deliver/a"}[i%2]
					request := fmt.Sprint(i)
					out := run(c, leaseOp{"acquire", res, holder, request, 0})
					if !out.ok {
						// A holder that was told nothing tries its old token.
						run(c, leaseOp{"release", res, holder, "", last[res]})
						continue
					}
					last[res] = out.token
					run(c, leaseOp{"acquire", res, holder, request, 0})
					run(c, leaseOp{"renew", res, holder, "", out.token})
					run(c, leaseOp{"check", res, holder, "", out.token - uint64(i%3/2)})
					run(c, leaseOp{"release", res, holder, "", out.token})
					run(c, leaseOp{"renew", res, holder, "", out.token})
				}
			})
		}
		wg.Wait()
		if got := porcupine.CheckOperationsTimeout(leaseModel, history, 2*time.Minute); got != porcupine.Ok {
			t.Fatalf("round %d: a history of %d operations is %v", round, len(history), got)
		}
	}
}
