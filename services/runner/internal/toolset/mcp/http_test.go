package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/pause"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
)

// between serves the good server to the client with a function in between, which returns true when it has answered a
// request of that method. A protocol older than the one without sessions is spoken.
func between(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, method string, id json.RawMessage) bool) *registrypb.McpServer {
	t.Helper()
	good, err := url.Parse(mcptest.ServeProtocol(t, "", "2025-11-25"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(good)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of streams that the client has left
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct {
			Method string
			ID     json.RawMessage
		}
		_ = json.Unmarshal(body, &m) // GET and DELETE have none
		if !answer(w, r, m.Method, m.ID) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return &registrypb.McpServer{Name: "web", Url: s.URL}
}

// events answers with a stream of events that ends.
func events(w http.ResponseWriter, text string) bool {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text) // fails when the client is gone
	return true
}

// S3-60: what is between a client and a server ends a stream on which nothing was sent for a while. The server has not
// ended: the stream is opened again, and calls go on.
func TestStreamEnds(t *testing.T) {
	again, n := make(chan struct{}), 0
	m := between(t, func(w http.ResponseWriter, r *http.Request, _ string, _ json.RawMessage) bool {
		if r.Method != http.MethodGet {
			return false
		}
		if n++; n == 2 { // the client opens one at a time
			close(again)
			return false
		}
		return events(w, "")
	})
	x, _, _ := connected(t, m)
	select {
	case <-again:
	case <-x.ended:
		t.Fatalf("the session has ended: %v", x.err)
	}
	if r, err := x.call(t.Context(), "echo", json.RawMessage(`{"text":"hi"}`), time.Minute, nil); err != nil || content(r.Content[0]) != "hi" {
		t.Errorf("echo: %v, %v", r, err)
	}
}

// S3-60: a server that answers a request for a stream in any other way has none, and its calls are answered.
func TestNoStream(t *testing.T) {
	for _, status := range []int{0, http.StatusTemporaryRedirect, http.StatusNotFound, http.StatusInternalServerError, http.StatusNotImplemented, http.StatusServiceUnavailable} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			m := between(t, func(w http.ResponseWriter, r *http.Request, _ string, _ json.RawMessage) bool {
				switch {
				case r.Method != http.MethodGet:
					return false
				case status == 0:
					panic(http.ErrAbortHandler) // the connection ends
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				return true
			})
			x, _, _ := connected(t, m)
			if r, err := x.call(t.Context(), "echo", json.RawMessage(`{"text":"hi"}`), time.Minute, nil); err != nil || content(r.Content[0]) != "hi" {
				t.Errorf("echo: %v, %v", r, err)
			}
		})
	}
}

// S3-60: a server ends the stream of a call that takes long, after an event with an identifier. The call goes on with a
// stream that continues there.
func TestStreamOfCallEnds(t *testing.T) {
	var id json.RawMessage
	m := between(t, func(w http.ResponseWriter, r *http.Request, method string, of json.RawMessage) bool {
		switch {
		case method == "tools/call":
			id = of
			return events(w, "id: 7\nretry: 1\ndata:\n\n")
		case r.Header.Get("Last-Event-ID") == "7":
			return events(w, fmt.Sprintf("id: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"late\"}]}}\n\n", id))
		}
		return false
	})
	x, _, _ := connected(t, m)
	if r, err := x.call(t.Context(), "append", json.RawMessage(`{"text":"hi"}`), time.Minute, nil); err != nil || content(r.Content[0]) != "late" {
		t.Errorf("append: %v, %v", r, err)
	}
}

// A tool cannot be called while the tools of its server cannot be read again after a change. No approval helps, and none is
// asked for.
func TestToolsNotRead(t *testing.T) {
	lists := 0
	m := between(t, func(w http.ResponseWriter, _ *http.Request, method string, id json.RawMessage) bool {
		if method != "tools/list" {
			return false
		}
		if lists++; lists == 1 { // the client asks for one at a time
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"not now"}}`, id)
		return true
	})
	read := make(chan struct{}, 1) // the tools were asked for again
	wait := func(ctx context.Context, d time.Duration) error {
		if d == relistEvery {
			select {
			case read <- struct{}{}:
			default:
			}
		}
		return pause.For(ctx, d)
	}
	s := newServer(&Options{Pins: noPins{}, Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil), Wait: wait}, new(atomic.Bool), "a1", "web")
	t.Cleanup(s.stop)
	x, err := s.acquire(t.Context(), launch{server: m})
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	x.mu.Lock()
	sha := x.tools["append"]
	x.mu.Unlock()
	if _, err := x.call(t.Context(), "change", json.RawMessage(`{"text":""}`), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	<-read
	if why := x.differs("web", "append", sha); !strings.Contains(why, "cannot be read") || strings.Contains(why, "approve") {
		t.Errorf("%q", why)
	}
}

// noPins is a registry that takes every report.
type noPins struct{ Pins }

func (noPins) ReportTools(context.Context, *registrypb.ReportToolsRequest, ...grpc.CallOption) (*registrypb.ReportToolsResponse, error) {
	return &registrypb.ReportToolsResponse{}, nil
}

// S3-61: a server that takes the request for a stream and answers nothing is ended with its start.
func TestStreamHangs(t *testing.T) {
	asked := make(chan struct{})
	m := between(t, func(_ http.ResponseWriter, r *http.Request, _ string, _ json.RawMessage) bool {
		if r.Method != http.MethodGet {
			return false
		}
		close(asked)
		<-r.Context().Done()
		return true
	})
	servers := New(Options{Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil)})
	c := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{m}}
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(started)
		_, _ = servers.Start(ctx, "a1", c, "web", false)
	}()
	<-asked
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		servers.Close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the server is not ended")
	}
	cancel()
	<-started
}
