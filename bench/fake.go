package main

import (
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
