package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// fakeServer stands for a program outside the runtime in a measurement: a receiver of
// replies or a model provider. It serves HTTP on a loopback port of its own and records
// when a request arrived or an answer left.
type fakeServer struct {
	URL string
	// Seen has a time for each request: when it came to a receiver, when its first
	// token left a provider.
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

// newEcho is a provider that answers at once what the newest message says after "say: ". A
// request for a digest gets a digest.
func newEcho() (*fakeServer, error) {
	return serveFake(func(_ *fakeServer, w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		answer := []byte("what was said so far, in a few words that can be a digest")
		if i := bytes.LastIndex(body, []byte("say: ")); i >= 0 && !bytes.Contains(body, []byte("You keep the memory of an agent.")) {
			answer = body[i+len("say: "):]
			answer = answer[:max(bytes.IndexAny(answer, "\"\\"), 0)]
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q},\"finish_reason\":null}]}\n\n"+
			"data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"id\":\"c1\",\"model\":\"m1\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":5,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", answer, len(body)/4, len(body)/4+5)
	})
}

// newProvider streams an answer of two pieces in the form of chat completions. It begins
// when told to: then somebody listens.
func newProvider(begin <-chan struct{}) (*fakeServer, error) {
	return serveFake(func(s *fakeServer, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(delta, finish string) {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n", delta, finish)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-begin:
		case <-r.Context().Done():
			return
		}
		s.Seen <- time.Now()
		say(`"content":"one "`, "null")
		say(`"content":"two"`, "null")
		say("", `"stop"`)
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
}
