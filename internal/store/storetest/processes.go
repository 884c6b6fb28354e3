package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
)

// process is a record of p-1, which the second call of the turn k has started.
func process(state store.ProcessState) store.Process {
	return store.Process{
		ID: "p-1", Thread: "threads/x", StepKey: "k:tool:1:2", State: state,
		SessionKey: "agent:a:x", Event: `{"from":"` + alice + `","reply_context":{"peer_id":"alice"}}`,
	}
}

// recorded records a process under a fence, and answers whether an event was pushed.
func (f *fixture) recorded(t *testing.T, fence store.Fence, p store.Process) (store.Process, bool) {
	t.Helper()
	out, err := f.RecordProcess(t.Context(), "a", fence, p)
	ok(t, err)
	if !out.State.Ended() && !out.Running {
		t.Errorf("process %s is %s, and none runs", out.ID, out.State)
	}
	return out.Process, out.Pushed
}

// exits are the texts of the events about processes in the inbox of a.
func (f *fixture) exits(t *testing.T) (out []string) {
	t.Helper()
	p, err := f.Read(t.Context(), inboxA, store.Query{Limit: 100})
	ok(t, err)
	for _, e := range p.Events {
		if !strings.HasPrefix(e.Source, "internal:process:") {
			continue
		}
		var c struct {
			Text string          `json:"text"`
			From string          `json:"from"`
			To   json.RawMessage `json:"reply_context"`
		}
		ok(t, json.Unmarshal([]byte(e.Content), &c))
		equal(t, "source of the message that started it", c.From, alice)
		equal(t, "reply context", string(c.To), `{"peer_id":"alice"}`)
		o := f.origin(t, e.ID)
		id := strings.Split(e.Source, ":")[2]
		equal(t, "origin", *o, store.Origin{Thread: "threads/x", Key: "agent:a:x", Cause: "process:" + id})
		out = append(out, c.Text)
	}
	return out
}

var processes = map[string]func(*testing.T, *fixture){
	"the first record of an end pushes one event": func(t *testing.T, f *fixture) {
		began, pushed := f.recorded(t, runner, process(store.ProcessStarting))
		equal(t, "state", began.State, store.ProcessStarting)
		equal(t, "token", began.Token, runner.Token)
		if pushed || began.StartedAt.IsZero() || !began.EndedAt.IsZero() {
			t.Errorf("began: %+v, pushed %v", began, pushed)
		}
		f.recorded(t, runner, process(store.ProcessRunning))
		f.recorded(t, runner, process(store.ProcessStarting)) // it came late
		f.pass(t, 5*time.Second)
		end := process(store.ProcessExited)
		end.Exit, end.Tail = 3, "done\n"
		for n := range 3 { // the first one, and repeats
			got, pushed := f.recorded(t, runner, end)
			equal(t, "state", got.State, store.ProcessExited)
			equal(t, "exit code", got.Exit, 3)
			if pushed != (n == 0) {
				t.Errorf("record %d pushed: %v", n, pushed)
			}
		}
		f.recorded(t, runner, process(store.ProcessKilled))
		equal(t, "events", fmt.Sprintf("%q", f.exits(t)), `["process p-1 exited with code 3 after 5s; the end of its output:\ndone"]`)
		list, err := f.Processes(t.Context(), "a", "threads/x", "")
		ok(t, err)
		if len(list) != 1 || list[0].State != store.ProcessExited || list[0].Tail != "done\n" {
			t.Errorf("listed: %+v", list)
		}
	},
	"no event is due at an end that was seen": func(t *testing.T, f *fixture) {
		f.recorded(t, runner, process(store.ProcessStarting))
		end := process(store.ProcessKilled)
		end.Seen = true
		if _, pushed := f.recorded(t, runner, end); pushed {
			t.Error("an event was pushed")
		}
		quiet := process(store.ProcessStarting)
		quiet.ID, quiet.StepKey, quiet.Seen = "p-2", "k:tool:1:3", true
		f.recorded(t, runner, quiet)
		quiet.State, quiet.Seen = store.ProcessExited, false
		if _, pushed := f.recorded(t, runner, quiet); pushed || len(f.exits(t)) > 0 {
			t.Error("a process without notification has an event")
		}
	},
	"a newer lease gives up what an older one left": func(t *testing.T, f *fixture) {
		other := process(store.ProcessStarting)
		other.ID, other.StepKey = "p-2", "k:tool:1:3"
		f.recorded(t, runner, process(store.ProcessRunning))
		f.pass(t, 5*time.Second)
		f.recorded(t, runner, other)
		b, err := f.OpenBatch(t.Context(), "a", runner, batch("m1"))
		ok(t, err)
		equal(t, "events of the same lease", len(b.Events), 0)
		f.pass(t, 2*time.Second)
		f.revoke(runner.Resource, runner.Token)
		newer := store.Fence{Resource: runner.Resource, Token: runner.Token + 1}
		var got []string
		after := int64(0)
		for range 3 { // the events may come with the next batch; more batches push nothing
			o := batch("m1")
			o.After = after
			b, err := f.OpenBatch(t.Context(), "a", newer, o)
			ok(t, err)
			for _, e := range b.Events {
				got = append(got, e.Thread+" "+e.Origin.Cause)
			}
			after = b.Scanned
		}
		equal(t, "batch", fmt.Sprint(got), "[threads/x process:p-1 threads/x process:p-2]")
		equal(t, "events", fmt.Sprintf("%q", f.exits(t)), `["process p-1 was ended by a restart after 7s" "process p-2 was ended by a restart; it may not have begun"]`)
		if _, err := f.RecordProcess(t.Context(), "a", runner, process(store.ProcessExited)); !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("the older lease records an end: %v", err)
		}
		late := process(store.ProcessExited)
		if got, pushed := f.recorded(t, newer, late); pushed || got.State != store.ProcessLost {
			t.Errorf("an end after the end: %+v, pushed %v", got, pushed)
		}
	},
	"an agent has work while a process runs": func(t *testing.T, f *fixture) {
		work := func(what string, want bool) {
			t.Helper()
			st, err := f.State(t.Context(), "a")
			ok(t, err)
			if got := st.Head > st.Acked; got != want {
				t.Errorf("%s: head %d, acked %d", what, st.Head, st.Acked)
			}
		}
		settle := func() {
			t.Helper()
			for _, p := range f.open(t).Events {
				f.settle(t, p.Event.ID)
			}
		}
		f.push(t, "1")
		f.recorded(t, runner, process(store.ProcessRunning))
		settle()
		work("it runs", true)
		end := process(store.ProcessExited)
		end.Seen = true
		f.recorded(t, runner, end)
		work("its end was seen", false)
		next := process(store.ProcessRunning)
		next.ID, next.StepKey = "p-2", "k:tool:1:3"
		f.push(t, "2")
		f.recorded(t, runner, next)
		settle()
		next.State = store.ProcessExited
		f.recorded(t, runner, next)
		work("its end is an event", true)
		settle()
		work("the event has its fate", false)
		lost := process(store.ProcessRunning)
		lost.ID, lost.StepKey, lost.Seen = "p-3", "k:tool:1:4", true
		f.push(t, "3")
		f.recorded(t, runner, lost)
		settle()
		f.revoke(runner.Resource, runner.Token)
		_, err := f.OpenBatch(t.Context(), "a", store.Fence{Resource: runner.Resource, Token: runner.Token + 1}, batch("m1"))
		ok(t, err)
		work("it was lost", false)
	},
	"what is erased holds nothing up": func(t *testing.T, f *fixture) {
		f.push(t, "1")
		f.recorded(t, runner, process(store.ProcessRunning))
		for _, p := range f.open(t).Events {
			f.settle(t, p.Event.ID)
		}
		ok(t, f.Erase(t.Context(), inboxA, store.PeerShare{Turns: []string{"k"}}))
		f.open(t)
		st, err := f.State(t.Context(), "a")
		ok(t, err)
		equal(t, "acked", st.Acked, st.Head)
	},
	"processes are those of a conversation": func(t *testing.T, f *fixture) {
		none, err := f.Processes(t.Context(), "a", "threads/x", "")
		ok(t, err)
		equal(t, "processes", len(none), 0)
		for n, at := range []string{"threads/x", "threads/y", "threads/x"} {
			p := process(store.ProcessStarting)
			p.ID, p.StepKey, p.Thread = fmt.Sprint("p-", n), fmt.Sprint("k:tool:1:", n), at
			f.recorded(t, runner, p)
			f.pass(t, time.Second)
		}
		for at, want := range map[string]string{"threads/x ": "p-2 p-0 ", "threads/y ": "p-1 ", "threads/x p-0": "p-0 ", "threads/x p-1": "", "threads/z ": ""} {
			threadID, id, _ := strings.Cut(at, " ")
			list, err := f.Processes(t.Context(), "a", threadID, id)
			ok(t, err)
			got := ""
			for _, p := range list {
				got += p.ID + " "
			}
			equal(t, "processes of "+at, got, want)
		}
		taken := process(store.ProcessStarting)
		taken.ID, taken.StepKey = "p-0", "k2:tool:1:1"
		if _, err := f.RecordProcess(t.Context(), "a", runner, taken); !errors.Is(err, store.ErrProcessTaken) {
			t.Errorf("the id of another call: %v", err)
		}
		taken.ID, taken.State = "p-9", store.ProcessExited
		if _, err := f.RecordProcess(t.Context(), "a", runner, taken); !errors.Is(err, store.ErrNoProcess) {
			t.Errorf("the end of none: %v", err)
		}
	},
	"a row stays for a week after its end": func(t *testing.T, f *fixture) {
		f.recorded(t, runner, process(store.ProcessStarting))
		f.recorded(t, runner, process(store.ProcessExited))
		next := process(store.ProcessStarting)
		for n, c := range []struct {
			wait time.Duration
			want int
		}{{store.ProcessKeep - time.Hour, 2}, {2 * time.Hour, 2}} {
			f.pass(t, c.wait)
			next.ID, next.StepKey = fmt.Sprint("p-1", n), fmt.Sprint("k:tool:2:", n)
			f.recorded(t, runner, next)
			list, err := f.Processes(t.Context(), "a", "threads/x", "")
			ok(t, err)
			equal(t, "processes", len(list), c.want)
		}
	},
	"what a peer's turns started is erased with them": func(t *testing.T, f *fixture) {
		f.recorded(t, runner, process(store.ProcessStarting))
		f.recorded(t, runner, process(store.ProcessExited))
		other := process(store.ProcessStarting)
		other.ID, other.StepKey = "p-2", "k2:tool:1:1"
		f.recorded(t, runner, other)
		ok(t, f.Erase(t.Context(), inboxA, store.PeerShare{Turns: []string{"k"}}))
		list, err := f.Processes(t.Context(), "a", "threads/x", "")
		ok(t, err)
		if len(list) != 1 || list[0].ID != "p-2" {
			t.Errorf("left: %+v", list)
		}
	},
}
