package openai_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/wire"
)

// slow is a provider inside the process, so that time is the bubble's: it
// answers after headers, then sends a chunk after each pause, then nothing.
type slow struct {
	headers time.Duration
	pauses  []time.Duration
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	if !wait(req.Context(), s.headers) {
		return nil, req.Context().Err()
	}
	r, w := io.Pipe()
	go func() {
		for _, pause := range s.pauses {
			if !wait(req.Context(), pause) {
				break
			}
			_, _ = io.WriteString(w, `data: {"id":"1","choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
		}
		<-req.Context().Done()
		_ = w.CloseWithError(req.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// S0-86: a slow provider is a recoverable failure of this call; only the
// caller's own deadline is the turn's end.
func TestTimeouts(t *testing.T) {
	tests := []struct {
		name     string
		provider slow
		cfg      openai.Config
		turn     time.Duration
		class    model.Class
		after    time.Duration
	}{
		{"no answer", slow{headers: time.Hour}, openai.Config{}, time.Hour, model.Unavailable, wire.DefaultIdleTimeout},
		{"silence in the answer", slow{pauses: []time.Duration{1e9, 1e9, time.Hour}}, openai.Config{IdleTimeout: 10 * time.Second}, time.Hour, model.CutStream, 12 * time.Second},
		{"chunks keep it alive until the call is over", slow{pauses: []time.Duration{8e9, 8e9, 8e9, 8e9, 8e9}}, openai.Config{IdleTimeout: 10 * time.Second, CallTimeout: 30 * time.Second}, time.Hour, model.Unavailable, 30 * time.Second},
		{"turn over before the answer", slow{headers: time.Hour}, openai.Config{}, time.Minute, model.Timeout, time.Minute},
		{"turn over in the answer", slow{pauses: []time.Duration{1e9}}, openai.Config{}, time.Minute, model.Timeout, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tt.cfg.Client = &http.Client{Transport: tt.provider}
				tt.cfg.BaseURL = "http://provider.test/v1"
				ctx, cancel := context.WithTimeout(t.Context(), tt.turn)
				defer cancel()
				_, err := newDriver(t, tt.cfg).Generate(ctx, model.Request{Model: "m"}, nil)
				e := model.AsError(err)
				if e == nil || e.Class != tt.class {
					t.Fatalf("got %v, want %s", err, tt.class)
				}
				if got := time.Since(start); got != tt.after { // the bubble's clock: exact
					t.Errorf("after %v, want %v", got, tt.after)
				}
				if tt.class == model.Timeout && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the cause is lost: %v", e.Err)
				}
			})
		})
	}
}
