//go:build proof

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// brokenOff is a provider that first asks for a tool, stops in the middle of its
// second answer until its caller is gone, and then gives the whole of it.
func brokenOff(t *testing.T) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(delta, finish string) {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n", delta, finish)
			_ = http.NewResponseController(w).Flush()
		}
		switch asked.Add(1) {
		case 1:
			say(`"content":"I look. "`, "null")
			say(`"tool_calls":[{"index":0,"id":"c1","function":{"name":"bash_exec","arguments":"{\"command\":\"echo x >> ran\"}"}}]`, `"tool_calls"`)
		case 2:
			say(`"content":"one "`, "null")
			say(`"content":"two "`, "null")
			<-r.Context().Done()
			return
		default:
			for _, word := range []string{"one ", "two ", "three"} {
				say(`"content":"`+word+`"`, "null")
			}
			say("", `"stop"`)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", asked
}

// kill -9 in the middle of a streamed reply: the run has the same id after the
// restart; a watcher that comes again with its last number is told once that what
// was under way is said anew, and gets the rest; there is one reply (S1-15, P1).
func TestKilledWhileStreaming(t *testing.T) {
	url, asked := brokenOff(t)
	site := world.NewSite(t, program(t))
	if err := os.MkdirAll(site.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "default: work\nproviders:\n  work: {api: openai, base_url: \"" + url + "\", models: [m1]}\n"
	if err := os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := append([]string{"all"}, flags...)
	p := site.Start(t, all...)
	site.Create(t, "a1", "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	started, err := site.Runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "a1", Text: "hi", IdempotencyKey: "once"})
	if err != nil {
		t.Fatal(err)
	}
	run := started.GetRunId()
	watch := func(after uint64, until string) (items []*runnerv1.StreamRunResponse) {
		t.Helper()
		_, err := world.Again(ctx, func(ctx context.Context) (any, error) {
			s, err := site.Runner.StreamRun(ctx, &runnerv1.StreamRunRequest{AgentId: "a1", RunId: run, AfterSeq: after})
			for err == nil {
				var i *runnerv1.StreamRunResponse
				if i, err = s.Recv(); err != nil {
					break
				}
				items = append(items, i)
				if i.GetSeq() <= after {
					t.Errorf("seq %d after %d", i.GetSeq(), after)
				}
				if after = i.GetSeq(); i.GetText() == until || i.GetPhase() == until && i.GetStream() == runnerv1.RunStream_RUN_STREAM_LIFECYCLE {
					return nil, nil
				}
			}
			return nil, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	before := watch(0, "two ")
	p.Kill()
	began := time.Now()
	p = site.Start(t, all...)
	again, err := world.Again(ctx, func(ctx context.Context) (*runnerv1.StartRunResponse, error) {
		return site.Runner.StartRun(ctx, &runnerv1.StartRunRequest{AgentId: "a1", Text: "hi", IdempotencyKey: "once"})
	})
	if err != nil || again.GetRunId() != run {
		t.Fatalf("the run is %q, after the kill %v %v", run, again, err)
	}
	told := func(items []*runnerv1.StreamRunResponse) string {
		var b strings.Builder
		for _, i := range items {
			switch i.GetStream() {
			case runnerv1.RunStream_RUN_STREAM_ASSISTANT:
				b.WriteString(i.GetText())
			case runnerv1.RunStream_RUN_STREAM_LIFECYCLE, runnerv1.RunStream_RUN_STREAM_TOOL:
				b.WriteString("[" + i.GetPhase() + "]")
			default:
			}
		}
		return b.String()
	}
	rest := watch(before[len(before)-1].GetSeq(), "end")
	if got := told(before) + " -- " + told(rest); got != "[start]I look. [start][result]one two  -- [restart]one two three[end]" {
		t.Errorf("the watcher was told %s", got)
	}
	t.Logf("the watcher had the rest %v after the restart", time.Since(began))
	if got := told(watch(0, "end")); !strings.HasSuffix(got, "one two three[end]") || strings.Contains(got, "restart") {
		t.Errorf("a new watcher was told %s", got)
	}
	end, err := site.Runner.WaitRun(ctx, &runnerv1.WaitRunRequest{AgentId: "a1", RunId: run})
	if err != nil || end.GetStatus() != runnerv1.RunStatus_RUN_STATUS_OK || end.GetText() != "one two three" {
		t.Errorf("%v %v", end, err)
	}
	turn := site.Await(t, "a1", started.GetInboxId())
	if n := len(site.Events(t, "a1", turn.GetThreadId(), "source = 'self' AND type = 'message'")); n != 1 || turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%d replies, %v", n, turn.GetFate())
	}
	if ran, err := os.ReadFile(filepath.Join(site.Home, "agents/a1/workdir/ran")); err != nil || string(ran) != "x\n" || asked.Load() != 3 {
		t.Errorf("the tool left %q %v, %d model calls", ran, err, asked.Load())
	}
	p.Kill()
}

// S2-55: a program that follows its message by the webhook sees the run move to another runner when the
// one that works on it is killed: what was written is void, the rest comes from there, and one end has the complete
// reply. A registry that is killed meanwhile costs nothing but time.
func TestStreamMovesToAnotherRunner(t *testing.T) {
	url, _ := brokenOff(t)
	site := world.NewSite(t, program(t))
	at := freeAddress(t)
	check(t, os.MkdirAll(site.Home, 0o700))
	check(t, os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte("default: work\nproviders:\n  work: {api: openai, base_url: \""+url+"\", models: [m1]}\n"), 0o600))
	check(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte("gateway: {http: \""+at+"\"}\nchannels:\n  free: {type: webhook, dm: open}\n"), 0o600))
	start := func(args ...string) *world.Process { return site.Start(t, append(args, flags...)...) }
	registry := start("registry")
	site.Serving(t, registry, "registry")
	site.Create(t, "a1", "")
	first := start("runner")
	gateway := start("gateway")
	site.Serving(t, gateway, "gateway")

	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var events *bufio.Scanner
	for { // the account comes up with the settings
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/hooks/free?wait=60s", strings.NewReader(`{"id":"1","from":{"id":"c7"},"text":"hi"}`))
		check(t, err)
		r.Header.Set("Accept", "text/event-stream")
		got, err := http.DefaultClient.Do(r)
		check(t, err)
		defer got.Body.Close()
		if got.StatusCode == http.StatusOK {
			events = bufio.NewScanner(got.Body)
			break
		}
		_ = pause.For(ctx, 5*time.Millisecond)
	}
	var all strings.Builder // texts, and the other events by their names
	ends := 0
	until := func(text string) {
		t.Helper()
		name := ""
		for !strings.HasSuffix(all.String(), text) && events.Scan() {
			if v, ok := strings.CutPrefix(events.Text(), "event: "); ok {
				name = v
				continue
			}
			data, ok := strings.CutPrefix(events.Text(), "data: ")
			if !ok {
				continue
			}
			var e struct{ Text, State, Fate, Reply string }
			check(t, json.Unmarshal([]byte(data), &e))
			switch name {
			case "text":
				all.WriteString(e.Text)
			case "done", "error":
				ends++
				fmt.Fprintf(&all, "[%s %s: %s]", name, e.Fate, e.Reply)
			default:
				fmt.Fprintf(&all, "[%s%s]", name, e.State)
			}
		}
		if !strings.HasSuffix(all.String(), text) {
			t.Fatalf("%q does not end in %q (%v); the log:\n%s", all.String(), text, events.Err(), gateway.Log())
		}
	}
	until("one two ")
	registry.Kill()
	registry = start("registry")
	site.Serving(t, registry, "registry")
	first.Kill()
	start("runner", "--name", "runner-2")
	until("[done replied: one two three]")
	for events.Scan() {
		if events.Text() != "" {
			t.Errorf("after the end: %q", events.Text())
		}
	}
	got := all.String()
	before, after, ok := strings.Cut(got, "one two [void]")
	if want := "[statequeued][staterunning]"; !ok || ends != 1 || events.Err() != nil || before != want && before != want+"I look. [void]" ||
		after != "one two three[done replied: one two three]" && !strings.HasPrefix("one two three", strings.TrimSuffix(after, "[done replied: one two three]")) {
		t.Errorf("%d ends, %v: %s", ends, events.Err(), got)
	}
	t.Logf("figures: %s", got)
}
