package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/pause"
)

// fakeServer stands for a program outside the runtime in a measurement: a receiver of
// replies or a model provider. It serves HTTP on a loopback port of its own and records
// when a request arrived or an answer left.
type fakeServer struct {
	URL string
	// Seen has a time for each request: when it came to a receiver, or when its first byte
	// left a provider, and when its last one did.
	Seen chan time.Time

	srv *http.Server
}

func serveFake(answer func(s *fakeServer, w http.ResponseWriter, r *http.Request)) (*fakeServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &fakeServer{URL: "http://" + l.Addr().String(), Seen: make(chan time.Time, 1<<16)}
	s.srv = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) })}
	go func() { _ = s.srv.Serve(l) }() // ends with Close
	return s, nil
}

// Close stops the server and interrupts its open requests.
func (s *fakeServer) Close() { _ = s.srv.Close() }

// newReceiver accepts replies as a webhook does.
func newReceiver() (*fakeServer, error) {
	return serveFake(func(s *fakeServer, _ http.ResponseWriter, r *http.Request) {
		s.Seen <- time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
	})
}

// A provider is an OpenAI-compatible server whose model costs no time of its own.
type provider struct {
	// Delay is how long the model takes before it answers.
	Delay time.Duration
	// Begin, where it is set, holds an answer back until something is sent on it, when a
	// reader is ready. Its first byte and its last one are recorded in Seen.
	Begin <-chan struct{}
}

// digestPrompt is in a request for a digest, and in no other.
const digestPrompt = "You keep the memory of an agent."

// serve starts it. It answers what the newest message says after "say: ", in one piece, or after
// "pieces: " so many pieces. After "run: " it asks for a shell command, and answers when it has
// the result. A request for a digest gets a digest.
func (p provider) serve() (*fakeServer, error) {
	return serveFake(func(s *fakeServer, w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		deltas, finish := answer(body)
		if !hold(r.Context(), p.Delay, p.Begin) {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := func() {}
		if p.Begin != nil {
			flush = func() { _ = http.NewResponseController(w).Flush() }
			s.Seen <- time.Now()
		}
		for _, delta := range deltas {
			fmt.Fprintf(w, "data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",%s},\"finish_reason\":null}]}\n\n", delta)
			flush()
		}
		fmt.Fprintf(w, "data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n"+
			"data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n",
			finish, len(body)/4, len(deltas), len(body)/4+len(deltas))
		if p.Begin != nil {
			flush()
			s.Seen <- time.Now()
		}
	})
}

// toolReply is the answer after a command that succeeded.
const toolReply = "it ran"

// answer is what a request gets, in pieces of JSON, and why it ends.
func answer(body []byte) (deltas []string, finish string) {
	say := func(text string) string { return fmt.Sprintf(`"content":%q`, text) }
	if bytes.Contains(body, []byte(digestPrompt)) {
		return []string{say("what was said so far, in a few words that can be a digest")}, "stop"
	}
	if text, ok := asked(body, "say: "); ok {
		return []string{say(text)}, "stop"
	}
	if text, ok := asked(body, "pieces: "); ok {
		n, _ := strconv.Atoi(text)
		return slices.Repeat([]string{say("word ")}, n), "stop"
	}
	command, ok := asked(body, "run: ")
	switch after := body[max(bytes.LastIndex(body, []byte("run: ")), 0):]; {
	case !ok:
		return []string{say("unknown question")}, "stop"
	case bytes.Contains(after, []byte(`"role":"tool"`)) && bytes.Contains(after, []byte(`\"exitCode\":0`)):
		return []string{say(toolReply)}, "stop"
	case bytes.Contains(after, []byte(`"role":"tool"`)):
		return []string{say("the command failed")}, "stop"
	}
	arguments := fmt.Sprintf(`{"command":%q}`, command)
	return []string{fmt.Sprintf(`"tool_calls":[{"index":0,"id":"call1","type":"function","function":{"name":"bash_exec","arguments":%q}}]`, arguments)}, "tool_calls"
}

// asked returns what follows a word in a request, where it stands last, up to the end of its text.
func asked(body []byte, word string) (string, bool) {
	i := bytes.LastIndex(body, []byte(word))
	if i < 0 {
		return "", false
	}
	text := body[i+len(word):]
	return string(text[:max(bytes.IndexAny(text, "\"\\"), 0)]), true
}

// hold waits for a time and for leave to begin; false when the caller is gone first.
func hold(ctx context.Context, delay time.Duration, begin <-chan struct{}) bool {
	if delay > 0 && pause.For(ctx, delay) != nil {
		return false
	}
	if begin == nil {
		return true
	}
	select {
	case <-begin:
		return true
	case <-ctx.Done():
		return false
	}
}
