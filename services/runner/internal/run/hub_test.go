package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	s.Call()
	for n := range 5 {
		s.Publish(delta(fmt.Sprint(n)))
	}
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Error})
	s.Close()
	late, _ := h.Find("k")
	items, err := collect(t, late, 0)
	if err != nil || len(items) != 7 || items[0].Seq != 1 || items[1].Seq != 3<<32|2 || items[6].Phase != run.End {
		t.Fatalf("%v %v", items, err)
	}
	if rest, err := collect(t, late, items[4].Seq); err != nil || len(rest) != 2 {
		t.Errorf("resumed with %v %v", rest, err)
	}
	if _, err := late.Next(t.Context(), items[6].Seq); !errors.Is(err, run.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// A run that goes on, here or under another lease, never repeats a number; who has
// read of a call that is made anew is told, and nobody else.
func TestGenerations(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 3)
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
	s.Call()
	s.Publish(delta("ab"))
	s.Close()
	items, err := collect(t, s, 0)
	if !errors.Is(err, run.ErrClosed) || len(items) != 2 || items[1].Seq != 3<<32|3 {
		t.Fatalf("%v %v", items, err)
	}
	_, opened := h.Find("k")
	s = h.Open("k", 4)
	<-opened
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
	s.Call()
	s.Publish(delta("c"))
	s.Close()
	if fresh, _ := collect(t, s, 0); len(fresh) != 2 || fresh[1].Text != "c" || fresh[1].Seq != 4<<32|2 {
		t.Errorf("who has nothing got %v", fresh)
	}
	if rest, _ := collect(t, s, items[1].Seq); len(rest) != 2 || rest[0].Phase != run.Restart || rest[1].Text != "c" {
		t.Errorf("who has a part got %v", rest)
	}
	if rest, _ := collect(t, s, 1); len(rest) != 1 || rest[0].Text != "c" {
		t.Errorf("who has the start got %v", rest)
	}
}

// A reader that is too slow is told, and costs the writer nothing. What the
// journal has not is kept.
func TestBehind(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 1)
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
	s.Call()
	for range 40 {
		s.Publish(delta(strings.Repeat("x", 64<<10)))
	}
	if items, err := s.Next(t.Context(), 1); err != nil || len(items) != 40 {
		t.Errorf("%d items, %v", len(items), err)
	}
	s.Settle()
	if _, err := s.Next(t.Context(), 1<<32|2); !errors.Is(err, run.ErrBehind) {
		t.Errorf("%v", err)
	}
	if items, err := s.Next(t.Context(), s.First()); err != nil || len(items) == 0 || len(items) > 16 {
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

// Short runs that are over take no more memory than long ones: a process that answers all
// day keeps a few thousand of them.
func TestClosedRunsAreBounded(t *testing.T) {
	var h run.Hub
	const runs = 20_000
	for n := range runs {
		s := h.Open(fmt.Sprint(n), 1)
		s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
		s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
		s.Close()
	}
	kept := 0
	for n := range runs {
		if s, _ := h.Find(fmt.Sprint(n)); s != nil {
			kept++
		}
	}
	if young, _ := h.Find(fmt.Sprint(runs - 1)); kept > 4096 || kept < 1000 || young == nil {
		t.Errorf("%d of %d closed runs are kept, the newest is %v", kept, runs, young)
	}
}

// Pieces that were put together are read from any number on, to the byte.
func TestJoinedPieces(t *testing.T) {
	var h run.Hub
	s := h.Open("k", 1)
	s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.Start})
	s.Call()
	var whole strings.Builder
	var seqs []uint64
	var at []int
	for n := range 20_000 {
		piece := fmt.Sprintf("é%d ", n)
		whole.WriteString(piece)
		s.Publish(delta(piece))
		seqs, at = append(seqs, s.Span().To), append(at, whole.Len())
	}
	items, err := s.Next(t.Context(), 0)
	if err != nil || len(items) > 8192 {
		t.Errorf("%d items are kept of 20,000 pieces, %v", len(items), err)
	}
	for n := 0; n < len(seqs); n += 997 {
		items, err := s.Next(t.Context(), seqs[n])
		if err != nil {
			t.Fatal(err)
		}
		var rest strings.Builder
		for _, i := range items {
			rest.WriteString(i.Text)
		}
		if rest.String() != whole.String()[at[n]:] {
			t.Fatalf("from piece %d on: %d bytes, want %d", n, rest.Len(), whole.Len()-at[n])
		}
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

// Who waits for the end is let go by it, and by the stream's close; a run that goes on is waited
// for again.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h run.Hub
		s := h.Open("k", 1)
		ended := make(chan string, 4)
		wait := func(ctx context.Context, name string) {
			go func() { s.Wait(ctx); ended <- name }()
			synctest.Wait()
		}
		is := func(want string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-ended:
				if got != want {
					t.Errorf("%q ended, want %q", got, want)
				}
			default:
				if want != "" {
					t.Errorf("%q still waits", want)
				}
			}
		}
		wait(t.Context(), "end")
		s.Publish(delta("a"))
		is("")
		s.Publish(run.Item{Kind: run.Lifecycle, Phase: run.End})
		is("end")
		s.Close()
		wait(t.Context(), "over")
		is("over")
		s = h.Open("k", 2)
		wait(t.Context(), "closed")
		is("")
		s.Close()
		is("closed")
		s = h.Open("k", 3)
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, "canceled")
		is("")
		cancel()
		is("canceled")
		s.Close()
	})
}

// Closed streams are given up some time after the last one, and not before; a stream that was
// opened again is not.
func TestClosedStreamsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h run.Hub
		there := func(key string) bool {
			s, _ := h.Find(key)
			return s != nil
		}
		h.Open("first", 1).Close()
		h.Open("again", 1).Close()
		time.Sleep(5 * time.Second)
		h.Open("second", 1).Close()
		live := h.Open("again", 2)
		time.Sleep(6 * time.Second)
		if there("first") || !there("second") || !there("again") {
			t.Errorf("after 11 s: first %v, second %v, again %v", there("first"), there("second"), there("again"))
		}
		time.Sleep(20 * time.Second)
		if there("second") || !there("again") {
			t.Errorf("after 31 s: second %v, again %v", there("second"), there("again"))
		}
		live.Close()
		time.Sleep(20 * time.Second)
		if there("again") {
			t.Error("it is kept after its second end")
		}
		h.Open("first", 2).Close() // as new
	})
}
