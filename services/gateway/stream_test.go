package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// talker is a model provider whose answers a test writes.
type talker struct {
	answer func(say func(delta, finish string), r *http.Request, asked string)
}

// talking writes the settings of a model that answers as f says into a new home.
func talking(t *testing.T, f func(say func(delta, finish string), r *http.Request, asked string)) world.Options {
	t.Helper()
	s := httptest.NewServer(talker{f})
	t.Cleanup(s.Close)
	o := world.Options{Home: filepath.Join(t.TempDir(), "home")}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("default: work\nproviders:\n  work: {api: openai, base_url: %q, models: [m1]}\n", s.URL+"/v1")
	if err := os.WriteFile(filepath.Join(o.Home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func (m talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	m.answer(func(delta, finish string) {
		if finish != "null" {
			finish = `"` + finish + `"`
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n", delta, finish)
		_ = http.NewResponseController(w).Flush()
	}, r, string(asked))
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// content is the delta of a text.
func content(text string) string {
	b, _ := json.Marshal(text)
	return `"content":` + string(b)
}

// event is one of a stream.
type event struct {
	id, name, data string
	at             time.Time
	answer         answer // of the last one
}

// following is a program that reads the events of a run.
type following struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Scanner
	all  []event
}

// follow posts a message and accepts events.
func (h *site) follow(t *testing.T, to string, body []byte, headers ...string) *following {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.at+to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Body.Close() })
	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" || got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s: %v", got.Status, got.Header)
	}
	f := &following{t: t, body: got.Body, in: bufio.NewScanner(got.Body)}
	f.in.Buffer(nil, 4<<20)
	return f
}

// next reads the next event; false at the end of the stream.
func (f *following) next() (e event, ok bool) {
	f.t.Helper()
	for f.in.Scan() {
		field, value, _ := strings.Cut(f.in.Text(), ": ")
		switch field {
		case "":
			if e.name == "" {
				continue
			}
			e.at = time.Now()
			if e.name == "done" || e.name == "error" {
				if err := json.Unmarshal([]byte(e.data), &e.answer); err != nil {
					f.t.Errorf("%q: %v", e.data, err)
				}
			}
			f.all = append(f.all, e)
			return e, true
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		}
	}
	return e, false
}

// until reads up to an event with a name and data that hold a text.
func (f *following) until(name, text string) event {
	f.t.Helper()
	for {
		e, ok := f.next()
		if !ok {
			f.t.Fatalf("the stream ended (%v): %+v", f.in.Err(), f.all)
		}
		if e.name == name && strings.Contains(e.data, text) {
			return e
		}
	}
}

// end reads to the end, which is one event, and returns it with the text behind the last void.
func (f *following) end() (last event, text string) {
	f.t.Helper()
	for {
		if _, ok := f.next(); !ok {
			break
		}
	}
	if err := f.in.Err(); err != nil {
		f.t.Errorf("the stream broke off: %v", err)
	}
	ends, at := 0, -1
	for n, e := range f.all {
		switch e.name {
		case "done", "error":
			last, at = e, n
			ends++
		case "void":
			text = ""
		case "text":
			text += f.text(e)
		}
	}
	if ends != 1 || at != len(f.all)-1 {
		f.t.Errorf("%d ends: %+v", ends, f.all)
	}
	return last, text
}

// text is what a text event holds.
func (f *following) text(e event) string {
	f.t.Helper()
	var data struct{ Text string }
	if err := json.Unmarshal([]byte(e.data), &data); err != nil || data.Text == "" {
		f.t.Errorf("%+v: %v", e, err)
	}
	return data.Text
}

// clients waits until so many clients follow runs, and returns them.
func (h *site) clients(t *testing.T, n int) []*gatewayv1.Client {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		info, err := h.World.Gateway.GetGatewayInfo(t.Context(), &gatewayv1.GetGatewayInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(info.GetClients()) == n {
			return info.GetClients()
		}
		if time.Now().After(end) {
			t.Fatalf("%d clients, want %d: %v", len(info.GetClients()), n, info)
		}
	}
}

const free = "  free: {type: webhook, dm: open, rate: 0}\n"

// S2-55, S1-59: a program that accepts events gets the answer while it is written, and one end with
// the complete reply. Of 100 pieces in a second it gets at most 7 frames; of thoughts and tools it
// gets nothing but that the text before a tool does not count. Without the header nothing is
// different, and nothing is called for it.
func TestStream(t *testing.T) {
	const pieces = 100
	var reply strings.Builder
	for n := range pieces {
		fmt.Fprint(&reply, n, " ")
	}
	seen := make(chan struct{})
	o := talking(t, func(say func(delta, finish string), r *http.Request, asked string) {
		say(`"reasoning_content":"a hidden thought"`, "null")
		if !strings.Contains(asked, `"role":"tool"`) {
			say(content("I look. "), "null")
			select {
			case <-seen:
			case <-r.Context().Done():
			}
			say(`"tool_calls":[{"index":0,"id":"c1","function":{"name":"bash_exec","arguments":"{\"command\":\"echo hidden output\"}"}}]`, "tool_calls")
			return
		}
		beat := time.NewTicker(time.Second / pieces)
		defer beat.Stop()
		for n := range pieces {
			say(content(fmt.Sprint(n, " ")), "null")
			select {
			case <-beat.C:
			case <-r.Context().Done():
			}
		}
		say("", "stop")
	})
	calls := prometheus.NewRegistry()
	o.Metrics = calls
	h := open(t, o, free)
	h.Create(t, "admin", "")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	body := message("1", "c7", "count")
	f := h.follow(t, "/hooks/free?wait=60s", body)
	f.until("text", `{"text":"I look. "}`)
	close(seen)
	last, text := f.end()
	if last.name != "done" || last.answer.Fate != "replied" || last.answer.Reply != reply.String() || last.answer.Agent != "admin" || last.answer.Duplicate || last.answer.RunID == "" {
		t.Errorf("%+v", last)
	}
	if text == "" || !strings.HasPrefix(reply.String(), text) {
		t.Errorf("the text is %q", text)
	}
	if f.all[0].data != `{"state":"queued"}` || f.all[1].data != `{"state":"running"}` {
		t.Errorf("%+v", f.all[:2])
	}
	var first time.Time
	frames, void := 0, 0
	for n, e := range f.all {
		if strings.Contains(e.data, "hidden") || strings.Contains(e.data, "bash_exec") {
			t.Errorf("%+v", e)
		}
		switch e.name {
		case "void":
			void = n
			frames = 0
		case "text":
			if frames++; frames == 1 {
				first = e.at
			}
		}
	}
	if void != 3 || f.all[void].data != "{}" {
		t.Errorf("%+v", f.all)
	}
	took := last.at.Sub(first)
	t.Logf("figures: pieces=%d frames=%d in %v", pieces, frames, took)
	if most := 1 + int(took/(150*time.Millisecond)); frames > most || frames < 2 {
		t.Errorf("%d frames in %v, want at most %d", frames, took, most)
	}

	// A repeat without the header is answered as before, with the same.
	repeat := h.post(t, "/hooks/free?wait=60s", body)
	if repeat.Status != 200 || !repeat.Duplicate || repeat.Reply != last.answer.Reply || repeat.RunID != last.answer.RunID || repeat.Session != last.answer.Session {
		t.Errorf("%+v", repeat)
	}
	before := handledBy(t, calls)
	if got := h.post(t, "/hooks/free?wait=60s", message("2", "c7", "count")); got.Reply != last.answer.Reply {
		t.Errorf("%+v", got)
	}
	after := handledBy(t, calls)
	for _, method := range []string{"LeaseService/FindRunner", "RunnerService/StreamRun", "RunnerService/GetRunnerInfo"} {
		if before[method] != after[method] || method != "RunnerService/GetRunnerInfo" && before[method] == 0 {
			t.Errorf("a post without events: %v calls of %s, %v before", after[method], method, before[method])
		}
	}
}

// A repeat follows the run of the first post, from its beginning or after the last event that it
// has; when that has ended it gets the end alone. S2-10: who follows is listed, and no more
// when that is over.
func TestStreamOfRepeat(t *testing.T) {
	release := make(chan struct{})
	h := open(t, talking(t, func(say func(delta, finish string), r *http.Request, _ string) {
		say(content("one "), "null")
		select {
		case <-release:
		case <-r.Context().Done():
		}
		say(content("two"), "null")
		say("", "stop")
	}), free)
	h.Create(t, "admin", "")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	began := time.Now()
	body := message("1", "c7", "count")
	one := h.follow(t, "/hooks/free?wait=60s", body)
	word := one.until("text", "one ")
	two := h.follow(t, "/hooks/free?wait=60s", body)
	two.until("text", "one ")
	three := h.follow(t, "/hooks/free?wait=60s", body, "Last-Event-ID", word.id)
	list := h.clients(t, 3)
	for n, c := range list {
		if c.GetKind() != "webhook" || c.GetAccount() != "free" || c.GetSince().AsTime().Before(began) || n > 0 && c.GetSince().AsTime().Before(list[n-1].GetSince().AsTime()) {
			t.Errorf("%v", list)
		}
	}
	// A short wait ends without a fate, as without events.
	if last, text := h.follow(t, "/hooks/free?wait=300ms", body).end(); last.name != "done" || !last.answer.Accepted || last.answer.Fate != "" || last.answer.Reply != "" || !strings.HasPrefix("one ", text) {
		t.Errorf("%+v, %q", last, text)
	}
	if last, text := h.follow(t, "/hooks/free", body).end(); last.name != "done" || !last.answer.Duplicate || last.answer.Fate != "" || text != "" {
		t.Errorf("%+v, %q", last, text)
	}
	close(release)
	for n, f := range []*following{one, two, three} {
		last, text := f.end()
		if last.name != "done" || last.answer.Reply != "one two" || last.answer.Duplicate != (n > 0) {
			t.Errorf("%d: %+v", n, last)
		}
		if want := []string{"one ", "one ", ""}[n]; text != want && text != want+"two" {
			t.Errorf("%d has %q", n, text)
		}
	}
	if two.all[0].data != `{"state":"running"}` || len(three.all) > 2 {
		t.Errorf("%+v, %+v", two.all, three.all)
	}
	h.clients(t, 0)
	late := h.follow(t, "/hooks/free?wait=60s", body)
	if last, _ := late.end(); len(late.all) != 1 || last.answer.Reply != "one two" {
		t.Errorf("%+v", late.all)
	}
	if n := h.stored(t); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}

// What is not accepted is answered as without events, or with an error event where that would be
// a success; a run that dies ends with an error event.
func TestStreamRefused(t *testing.T) {
	h := open(t, world.Options{}, free+"  shop: {type: webhook, dm: open, secret: \"env:KEY\"}\n  listed: {type: webhook, dm: allowlist, allow_from: [c7]}\n")
	h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	events := []string{"Accept", "text/event-stream"}
	for _, c := range []struct {
		to      string
		body    []byte
		headers []string
		status  int
	}{
		{"/hooks/shop?wait=20s", message("1", "c7", "say: x"), nil, 401},
		{"/hooks/missing?wait=20s", message("1", "c7", "say: x"), nil, 404},
		{"/hooks/free?wait=2h", message("1", "c7", "say: x"), nil, 400},
		{"/hooks/free?wait=20s", message("1", "c7", "say: x"), []string{"Last-Event-ID", "x"}, 400},
		{"/hooks/free?wait=20s", message("1", "c7", ""), nil, 400},
	} {
		if got := h.post(t, c.to, c.body, append(c.headers, events...)...); got.Status != c.status || got.Reason == "" {
			t.Errorf("%s: %+v", c.to, got)
		}
	}
	if last, _ := h.follow(t, "/hooks/listed?wait=20s", message("1", "c8", "say: x")).end(); last.name != "error" || last.answer.Accepted || last.answer.Reason != "PEER_REFUSED" {
		t.Errorf("%+v", last)
	}
	if n := h.stored(t); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	if last, _ := h.follow(t, "/hooks/free?wait=60s", message("1", "c7", "fail: config")).end(); last.name != "error" || last.answer.Fate != "dead" {
		t.Errorf("%+v", last)
	}
	body := message("2", "c7", "say: x")
	f := h.follow(t, "/hooks/shop?wait=60s", body, signed(body)...)
	if last, text := f.end(); last.answer.Reply != "x" || text != "x" || len(f.all) != 4 {
		t.Errorf("%+v", f.all)
	}
}

// S2-55: a program that reads nothing delays neither the run nor another program that follows it,
// and is given up after a while. Then no goroutine is left of them.
func TestStreamNotRead(t *testing.T) {
	const size = 400 << 10
	piece := strings.Repeat("word ", 2<<10)
	h := open(t, talking(t, func(say func(delta, finish string), _ *http.Request, asked string) {
		n := 1
		if strings.Contains(asked, "at length") {
			n = size / len(piece)
		}
		for range n {
			say(content(piece), "null")
		}
		say("", "stop")
	}), free)
	h.Create(t, "admin", "")
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	h.follow(t, "/hooks/free?wait=60s", message("0", "c7", "hello")).end()
	http.DefaultClient.CloseIdleConnections()
	h.clients(t, 0)
	goroutinesEnd(t)

	body := message("1", "c7", "at length")
	// The kernel takes little for a connection with small segments and a small buffer.
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = errors.Join(syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536), syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<10))
		})
		return errors.Join(err, set)
	}}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /hooks/free?wait=60s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	h.clients(t, 1)
	fast := h.follow(t, "/hooks/free?wait=60s", body)
	last, text := fast.end()
	if want := strings.Repeat(piece, size/len(piece)); last.answer.Reply != want || !strings.HasPrefix(want, text) {
		t.Errorf("%d bytes, %d in pieces, want %d", len(last.answer.Reply), len(text), len(want))
	}
	t.Logf("figures: bytes=%d frames=%d", len(last.answer.Reply), len(fast.all))
	if turn := h.Ask(t, "admin", 2, 0); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%v", turn)
	}
	h.clients(t, 1) // what was written last is not taken
	h.clients(t, 0) // the time for that is over
	goroutinesEnd(t)
}

// goroutinesEnd waits until no goroutine follows a run or answers a post.
func goroutinesEnd(t *testing.T) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	of := regexp.MustCompile(`services/gateway/internal/(?:stream|intake\.\(\*Handler)|internal/rpc/runs`)
	stacks := make([]byte, 4<<20)
	for end := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		all := string(stacks[:runtime.Stack(stacks, true)])
		left := slices.DeleteFunc(strings.Split(all, "\n\n"), func(one string) bool { return !of.MatchString(one) || strings.Contains(one, "goroutinesEnd") })
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}

// Too many programs: one more gets its message accepted and no events of its run. The streams end
// with the gateway, each with its last event.
func TestManyStreams(t *testing.T) {
	h := open(t, world.Options{}, free)
	h.state(t, "free", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	if _, err := h.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "admin"}); err != nil {
		t.Fatal(err)
	}
	const most = 64
	streams := make([]*following, most)
	var g sync.WaitGroup
	for n := range streams {
		g.Go(func() { streams[n] = h.follow(t, "/hooks/free?wait=60s", message("1", "c7", "say: x")) })
	}
	g.Wait()
	h.clients(t, most)
	if last, text := h.follow(t, "/hooks/free?wait=60s", message("2", "c7", "say: x")).end(); last.name != "done" || !last.answer.Accepted || last.answer.Fate != "" || text != "" {
		t.Errorf("%+v", last)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stopped := make(chan struct{})
	go func() { h.Gateways[0].Stop(); close(stopped) }()
	runs := map[string]int{}
	for _, f := range streams {
		last, _ := f.end()
		runs[last.name+" "+last.answer.RunID]++
	}
	if len(runs) != 1 || !maps.Equal(runs, map[string]int{"done " + streams[0].all[len(streams[0].all)-1].answer.RunID: most}) {
		t.Errorf("%v", runs)
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		t.Error("the gateway does not stop")
	}
}
