package dispatch_test

import (
	"slices"
	"testing"

	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

func all(string) (bool, bool) { return true, false }

func agents(items []dispatch.Item) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.Agent)
	}
	return out
}

func TestOldestFirstAndOnce(t *testing.T) {
	b := dispatch.New()
	for _, a := range []string{"c", "a", "c", "b"} {
		b.Mark(a)
	}
	got, _ := b.Take(all)
	if !slices.Equal(agents(got), []string{"c", "a", "b"}) {
		t.Fatalf("took %v", agents(got))
	}
	if again, _ := b.Take(all); len(again) != 0 {
		t.Fatalf("took %v twice", agents(again))
	}
}

// A mark that comes while the agent is being offered is not lost.
func TestMarkDuringOfferSurvives(t *testing.T) {
	b := dispatch.New()
	b.Mark("a", "t1")
	got, _ := b.Take(func(a string) (bool, bool) { b.Mark(a, "t2"); return true, false })
	if len(got) != 1 || !slices.Equal(got[0].Threads, []string{"t1"}) {
		t.Fatalf("took %v", got)
	}
	got, _ = b.Take(all)
	if len(got) != 1 || !slices.Equal(got[0].Threads, []string{"t2"}) {
		t.Fatalf("the second mark is gone: %v", got)
	}
}

func TestRefusedStaysAndKeepsItsThreads(t *testing.T) {
	b := dispatch.New()
	b.Mark("held", "t1")
	b.Mark("free")
	got, _ := b.Take(func(a string) (bool, bool) {
		if a == "held" {
			b.Mark("held", "t2")
		}
		return a == "free", false
	})
	if !slices.Equal(agents(got), []string{"free"}) || b.Len() != 1 {
		t.Fatalf("took %v, %d left", agents(got), b.Len())
	}
	got, _ = b.Take(all)
	slices.Sort(got[0].Threads)
	if !slices.Equal(got[0].Threads, []string{"t1", "t2"}) {
		t.Fatalf("threads %v", got[0].Threads)
	}
}

func TestStopLeavesTheRest(t *testing.T) {
	b := dispatch.New()
	b.Mark("a")
	b.Mark("b")
	got, _ := b.Take(func(string) (bool, bool) { return true, true })
	if len(got) != 1 || b.Len() != 1 {
		t.Fatalf("took %v, %d left", agents(got), b.Len())
	}
}

// An agent that one taker may not have is seen by another who looks at the same
// moment: it is the one that may (lost wake-ups, RELIABILITY section 5).
func TestRefusedIsSeenByOthers(t *testing.T) {
	b := dispatch.New()
	b.Mark("a", "t1")
	var mine []dispatch.Item
	got, _ := b.Take(func(string) (bool, bool) {
		mine, _ = b.Take(all)
		return false, false
	})
	if len(got) != 0 || !slices.Equal(agents(mine), []string{"a"}) || !slices.Equal(mine[0].Threads, []string{"t1"}) || b.Len() != 0 {
		t.Fatalf("refused %v, took %v, %d left", got, mine, b.Len())
	}
}

// The channel of a round is closed by a mark that came during the round.
func TestNoWakeIsLost(t *testing.T) {
	b := dispatch.New()
	b.Mark("x")
	_, wake := b.Take(func(string) (bool, bool) { b.Mark("y"); return true, true })
	<-wake
	b.Drop("y")
	if b.Len() != 0 {
		t.Fatal("drop left it")
	}
	_, wake = b.Take(all)
	b.Wake()
	<-wake
}
