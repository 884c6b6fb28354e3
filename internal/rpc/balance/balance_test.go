package balance_test

import (
	"testing"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/balance"
)

// What a target may be. That calls go round, and on, is shown by the proof of a cluster
// (proofs/cluster): it takes servers that die.
func TestTargets(t *testing.T) {
	for target, c := range map[string]struct{ many, good bool }{
		"unix:///run/registry.sock":               {false, true},
		"unix:///a, b/registry.sock":              {false, true},
		"dns:///registries:7443":                  {true, true},
		"dns:///a:7443,dns:///b:7443":             {true, true},
		"dns:///a:7443, b:7443":                   {true, true},
		"unix:///a/r.sock,unix:///b/r.sock":       {true, false},
		"dns:///a:7443,unix:///run/registry.sock": {true, false},
	} {
		cc, err := balance.Dial(target, rpc.DialOptions{Insecure: true, Safe: []string{"/a.B/C"}})
		if balance.Many(target) != c.many || (err == nil) != c.good {
			t.Errorf("%s: many %v, %v", target, balance.Many(target), err)
		}
		if cc != nil {
			if err := cc.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
