package memory

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

const (
	// tries is how many digests of a layer fail, with a growing number of turns between
	// them, before only another full interval of turns brings the next one.
	tries = 4
	// defaultInterval is that interval where the settings have no compaction.after_turns.
	defaultInterval = 10
	// maxFailures are remembered; a layer that is forgotten costs one call.
	maxFailures = 10_000
)

// Failures are the layers whose last digests failed. A digest that fails is asked for again
// after 1, 2 and 4 more turns that need it, and then once in each interval of
// compaction.after_turns: a model that cannot make digests is not asked at each message. A
// layer that was digested meanwhile, by any process, and another model begin from the
// start. They are kept in memory: a restart costs one call. The zero value is ready; nil remembers nothing.
type Failures struct {
	mu      sync.Mutex
	byLayer map[layerKey]*failure
}

type layerKey struct{ agent, layer string }

type failure struct {
	compactions int64  // of the layer, when its digest failed
	model       string // that was asked
	count       int    // digests that failed
	wait        int    // turns that go on without one
	err         string // why the last one failed
}

// Failing is a layer whose digests failed so often that they are asked for only now and then.
type Failing struct {
	Agent, Name string // the file of the layer
	Count       int
	Error       string
}

// List returns such layers in order, at most limit.
func (f *Failures) List(limit int) []Failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Failing
	for k, l := range f.byLayer {
		if l.count >= tries {
			out = append(out, Failing{k.agent, k.layer, l.count, l.err})
		}
	}
	slices.SortFunc(out, func(a, b Failing) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), limit)]
}

// Digested forgets the failures of a layer that was digested.
func (f *Failures) Digested(agent, layer string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byLayer, layerKey{agent, layer})
}

// Wait reports whether a turn goes on without a digest of a layer, and counts it.
func (f *Failures) Wait(agent, layer string, compactions int64, model string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := layerKey{agent, layer}
	l := f.byLayer[k]
	if l == nil {
		return false
	}
	if l.compactions != compactions || l.model != model {
		delete(f.byLayer, k)
		return false
	}
	if l.wait == 0 {
		return false
	}
	l.wait--
	return true
}

// Failed notes a digest that failed and returns how many have, and how many turns go on
// without one.
func (f *Failures) Failed(agent, layer string, compactions int64, model string, interval int, why string) (count, wait int) {
	if f == nil {
		return 1, 0
	}
	if interval <= 0 {
		interval = defaultInterval
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := layerKey{agent, layer}
	l := f.byLayer[k]
	if l == nil || l.compactions != compactions || l.model != model {
		if f.byLayer == nil || len(f.byLayer) >= maxFailures {
			f.byLayer = map[layerKey]*failure{}
		}
		l = &failure{compactions: compactions, model: model}
		f.byLayer[k] = l
	}
	l.err = why
	if l.count++; l.count < tries {
		l.wait = min(1<<(l.count-1), interval) - 1
	} else {
		l.wait = interval - 1
	}
	return l.count, l.wait
}
