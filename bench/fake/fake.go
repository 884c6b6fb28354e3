// Package fake owns what stands outside of the runtime in a measurement, on loopback:
// a receiver of replies and a model provider. Each says when something came or left.
package fake

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Server answers HTTP on a port of its own.
type Server struct {
	URL string
	// Seen has a time for each request: when it came to a receiver, when its first
	// token left a provider.
	Seen chan time.Time

	srv *http.Server
}

func serve(answer func(s *Server, w http.ResponseWriter, r *http.Request)) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + l.Addr().String(), Seen: make(chan time.Time, 1<<16)}
	s.srv = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) })}
	go func() { _ = s.srv.Serve(l) }() // ends with Close
	return s, nil
}

// Close ends it and what it is answering.
func (s *Server) Close() { _ = s.srv.Close() }

// Receiver takes replies as a webhook does.
func Receiver() (*Server, error) {
	return serve(func(s *Server, _ http.ResponseWriter, r *http.Request) {
		s.Seen <- time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
	})
}

// Provider streams an answer of two pieces in the form of chat completions. It begins
// when told to: then somebody listens.
func Provider(begin <-chan struct{}) (*Server, error) {
	return serve(func(s *Server, w http.ResponseWriter, r *http.Request) {
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
