package run_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func delta(text string) run.Item {
	return run.Item{Kind: run.Assistant, Phase: run.Delta, Text: text}
}

func collect(t *testing.T, s *run.Stream, after uint64) (items []run.Item, err error) {
	t.Helper()
	for {
		more, err := s.Next(t.Context(), after)
		if err != nil {
			return items, err
		}
		for _, i := range more {
			if i.Seq <= after {
				t.Fatalf("seq %d after %d", i.Seq, after)
			}
			after = i.Seq
			items = append(items, i)
			if i.Last() {
				return items, nil
			}
		}
	}
}

// S1-14, S1-15: seq rises, late readers see all, the end comes once.
func TestReplay(t *testing.T) {
	var h run.Hub
	if s, _ := h.Find("k"); s != nil {
		t.Fatal("found a run that was never opened")
	}
	s := h.Open("k", 3)
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
	for n := range 5 {
		s.Publish(delta(fmt.Sprint(n)))
	}
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Error})
	s.Close()
	late, _ := h.Find("k")
	items, err := collect(t, late, 0)
	if err != nil || len(items) != 7 || items[0].Seq != 3<<32|1 || items[6].Phase != run.End {
		t.Fatalf("%v %v", items, err)
	}
	if rest, err := collect(t, late, items[4].Seq); err != nil || len(rest) != 2 {
		t.Errorf("resumed with %v %v", rest, err)
	}
	if _, err := late.Next(t.Context(), items[6].Seq); !errors.Is(err, run.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// A run that goes on, here or under another lease, never repeats a number.
func TestGenerations(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 3)
	s.Publish(delta("a"))
	s.Close()
	if items, err := collect(t, s, 0); !errors.Is(err, run.ErrClosed) || len(items) != 1 {
		t.Fatalf("%v %v", items, err)
	}
	_, opened := h.Find("k")
	s = h.Open("k", 3)
	<-opened
	s.Publish(delta("b"))
	s.Close()
	s = h.Open("k", 4)
	s.Publish(delta("c"))
	s.Close()
	items, _ := collect(t, s, 0)
	if len(items) != 3 || items[1].Seq != 3<<32|2 || items[2].Seq != 4<<32|1 {
		t.Errorf("%v", items)
	}
}

// A reader that is too slow is told, and costs the writer nothing.
func TestBehind(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 1)
	for range 40 {
		s.Publish(delta(strings.Repeat("x", 64<<10)))
	}
	if _, err := s.Next(t.Context(), 1<<32|2); !errors.Is(err, run.ErrBehind) {
		t.Errorf("%v", err)
	}
	if items, err := s.Next(t.Context(), 0); err != nil || len(items) == 0 || len(items) > 16 {
		t.Errorf("%d items, %v", len(items), err)
	}
	for n := range 40 { // closed runs do not pile up
		c := h.Open(fmt.Sprint(n), 1)
		c.Publish(delta(strings.Repeat("x", 900<<10)))
		c.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
		c.Close()
	}
	if old, _ := h.Find("0"); old != nil {
		t.Error("the oldest closed run is still there")
	}
	if young, _ := h.Find("39"); young == nil {
		t.Error("the newest closed run is gone")
	}
}

// Many readers, each at its own pace.
func TestReadersWhileWriting(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if items, err := collect(t, s, 0); err != nil || len(items) != 1001 {
				t.Errorf("%d items, %v", len(items), err)
			}
		})
	}
	for n := range 1000 {
		s.Publish(delta(fmt.Sprint(n)))
	}
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
	wg.Wait()
	s.Close()
}
