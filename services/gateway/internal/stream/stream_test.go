package stream

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/fault"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run makes the items of a run.
type run struct{ seq uint64 }

func (r *run) item(s runnerv1.RunStream, phase, text string) *runnerv1.StreamRunResponse {
	r.seq += uint64(max(len(text), 1))
	return &runnerv1.StreamRunResponse{Seq: r.seq, Stream: s, Phase: phase, Text: text}
}

func (r *run) says(text string) *runnerv1.StreamRunResponse {
	return r.item(runnerv1.RunStream_RUN_STREAM_ASSISTANT, "delta", text)
}

func (r *run) life(phase string) *runnerv1.StreamRunResponse {
	return r.item(runnerv1.RunStream_RUN_STREAM_LIFECYCLE, phase, "")
}

func (r *run) tool(phase string) *runnerv1.StreamRunResponse {
	return r.item(runnerv1.RunStream_RUN_STREAM_TOOL, phase, "secret")
}

// came is a frame with the time at which the client got it.
type came struct {
	Frame
	at time.Duration
}

// collect takes frames until the end.
func collect(t *testing.T, r *Reader) (all []came) {
	began := time.Now()
	for {
		f, err := r.Next(t.Context())
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return all
		}
		all = append(all, came{f, time.Since(began)})
	}
}

// client is what a client makes of the frames that it gets.
type client struct {
	text  string // since the last void
	seq   uint64
	texts int
}

func (c *client) take(t *testing.T, f Frame) {
	t.Helper()
	if f.Seq <= c.seq {
		t.Errorf("%v after %d", f, c.seq)
	}
	c.seq = f.Seq
	switch f.Type {
	case Text:
		c.text += f.Text
		c.texts++
	case Void:
		c.text = ""
	case State:
	}
}

// S2-55: of 100 pieces in a second a client gets at most 7 frames, the first at once, no two
// within 150 ms; the pieces that are not due at the end are left to the reply.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, from, all := newReader(0), &run{}, ""
		var g sync.WaitGroup
		defer g.Wait()
		g.Go(func() {
			r.add(from.life("start"))
			for n := range 100 {
				text := fmt.Sprint(n, " ")
				all += text
				r.add(from.says(text))
				time.Sleep(10 * time.Millisecond)
			}
			r.add(from.life("end"))
			r.end(io.EOF)
		})
		frames := collect(t, r)
		var c client
		last := -interval
		for _, f := range frames {
			c.take(t, f.Frame)
			if f.Type != Text {
				continue
			}
			if f.at-last < interval {
				t.Errorf("a frame %v after the one before", f.at-last)
			}
			last = f.at
		}
		if len(frames) == 0 || frames[0].Type != State || frames[0].Text != Running {
			t.Errorf("%+v", frames)
		}
		if c.texts != 7 || !strings.HasPrefix(all, c.text) || !strings.Contains(c.text, " 89 ") {
			t.Errorf("%d frames: %q", c.texts, c.text)
		}
		if end := frames[len(frames)-1].at; end != 900*time.Millisecond {
			t.Errorf("the last frame came after %v", end)
		}
	})
}

// What is due comes before the end, at once, also of a run that was over when it was followed.
func TestShortRun(t *testing.T) {
	r, from := newReader(0), &run{}
	for _, i := range []*runnerv1.StreamRunResponse{from.life("start"), from.says("a"), from.says("b"), from.life("end")} {
		r.add(i)
	}
	r.end(io.EOF)
	frames := collect(t, r)
	if len(frames) != 2 || frames[1].Frame != (Frame{Type: Text, Seq: 3, Text: "ab"}) {
		t.Errorf("%+v", frames)
	}
}

// S1-59: the text frames of a client behind the last void are what is said since the last tool
// or restart, whenever it takes them; nothing of tools or thoughts is in a frame; what waits is
// at most one frame of each type.
func TestFrames(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 0))
			r, from, want := newReader(0), &run{}, ""
			var c client
			take := func() (n int) {
				for ; ; n++ {
					f, wait := r.take()
					if f.Type == "" {
						if wait > 0 {
							time.Sleep(wait)
							continue
						}
						return n
					}
					if strings.Contains(f.Text, "secret") {
						t.Errorf("%v", f)
					}
					c.take(t, f)
				}
			}
			r.add(from.life("start"))
			for range chance.IntN(60) {
				switch chance.IntN(9) {
				case 0:
					r.add(from.tool("start"))
					want = ""
				case 1:
					r.add(from.life("restart"))
					want = ""
				case 2:
					r.add(from.tool("update"))
					r.add(from.tool("result"))
				case 3:
					r.add(from.item(runnerv1.RunStream_RUN_STREAM_REASONING, "delta", "secret"))
				case 4:
					if n := take(); n > 3 {
						t.Errorf("%d frames were waiting", n)
					}
				case 5:
					again := from.says("x") // an item that was received before
					r.add(again)
					r.add(again)
					want += "x"
				default:
					text := fmt.Sprint("word ", chance.IntN(10))
					r.add(from.says(text))
					want += text
				}
			}
			if take(); c.text != want {
				t.Errorf("seed %d: the client has %q, want %q", seed, c.text, want)
			}
		})
	}
}

// S2-55: a client that takes nothing delays no other, holds at most one frame of each type, and
// when that is full its run is not read until it takes the text; then nothing is missing.
func TestStoppedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, fast := newReader(0), newReader(0)
		one, two := &run{}, &run{}
		piece := strings.Repeat("x", 1<<10)
		const pieces = maxText>>10 + 40
		var g sync.WaitGroup
		defer g.Wait()
		var blocked time.Duration
		began := time.Now()
		g.Go(func() { // as [Reader.read] does
			defer stopped.end(io.EOF)
			stopped.add(one.life("start"))
			for range pieces {
				if full, _ := stopped.add(one.says(piece)); full {
					at := time.Now()
					<-stopped.room
					blocked = time.Since(at)
				}
			}
			time.Sleep(time.Second) // so that all of it is due before the end
		})
		g.Go(func() {
			defer fast.end(io.EOF)
			fast.add(two.life("start"))
			for range pieces {
				fast.add(two.says(piece))
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
		})
		var c client
		for _, f := range collect(t, fast) {
			c.take(t, f.Frame)
		}
		if len(c.text) != pieces<<10 {
			t.Errorf("the client that reads has %d bytes, want %d", len(c.text), pieces<<10)
		}
		took := time.Since(began)
		stopped.mu.Lock()
		waiting := len(stopped.text)
		stopped.mu.Unlock()
		if waiting != maxText {
			t.Errorf("%d bytes wait for the stopped client, want %d", waiting, maxText)
		}
		c = client{}
		frames := collect(t, stopped)
		for _, f := range frames {
			c.take(t, f.Frame)
		}
		if len(c.text) != pieces<<10 || len(frames) != 3 || blocked < took {
			t.Errorf("then it has %d bytes in %d frames; its run was not read for %v, want %v", len(c.text), len(frames), blocked, took)
		}
	})
}

// A client that continues after a position gets no start, and a void for what it may have.
func TestContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, from := newReader(40), &run{seq: 40}
		r.add(from.says("rest"))
		r.add(from.life("restart"))
		r.add(from.says("again"))
		r.end(io.EOF)
		frames := collect(t, r)
		if len(frames) != 2 || frames[0].Frame != (Frame{Type: Void, Seq: 45}) || frames[1].Frame != (Frame{Type: Text, Seq: 50, Text: "again"}) {
			t.Errorf("%+v", frames)
		}
	})
}

// Which requests want events, and after which one.
func TestRequests(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true, "Text/Event-Stream; q=0.5": true, "application/json, text/event-stream": true, "text/event-streams": false, ";,": false,
	} {
		if got := Wanted(&http.Request{Header: http.Header{"Accept": {accept}}}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
	for id, want := range map[string]uint64{"": 0, "7": 7, "18446744073709551615": 1<<64 - 1} {
		if got, err := Last(&http.Request{Header: http.Header{"Last-Event-Id": {id}}}); got != want || err != nil {
			t.Errorf("%q: %v %v", id, got, err)
		}
	}
	for _, id := range []string{"-1", "x", "18446744073709551616", strings.Repeat("1", 1000)} {
		if _, err := Last(&http.Request{Header: http.Header{"Last-Event-Id": {id}}}); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}
