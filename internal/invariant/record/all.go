package record

import (
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Record is how a thread stands to what was written.
type Record struct {
	Broken []Flaw
	Mirror Mirror
}

// All judges every database of a home, as many at once as there are processors.
func All(home *snapshot.Home) map[*snapshot.DB]*Record {
	out := map[*snapshot.DB]*Record{}
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, a := range home.Agents {
		for _, d := range a.All() {
			r := &Record{}
			out[d] = r
			all.Go(func() error {
				if r.Broken = Broken(d); !home.Shared {
					r.Mirror = Compare(d)
				}
				return nil
			})
		}
	}
	_ = all.Wait() // they answer no error
	return out
}
