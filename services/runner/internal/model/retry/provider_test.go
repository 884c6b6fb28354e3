package retry_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/openai"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
)

func caller(t *testing.T, baseURL string) *retry.Caller {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d, err := openai.New(openai.Config{Name: "p", BaseURL: baseURL, Client: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return retry.NewPool(retry.Waits{}).Caller(d)
}

// S0-86, F4: 429, 429, 200 over real HTTP: three calls, the waits as the provider
// asks, none of them charged, the answer at the end. The turn does the waiting, so this
// test does not.
func TestThreeTriesOverHTTP(t *testing.T) {
	first, second := modeltest.Fail(429, "slow"), modeltest.Fail(429, "slow")
	first.RetryAfter, second.RetryAfter = "5", "6.5"
	server := modeltest.New(t, first, second, modeltest.Say("done"))
	c := caller(t, server.URL())
	var waits []time.Duration
	for n := 1; n <= 3; n++ {
		response, outcome := c.Try(t.Context(), model.Request{Model: "m", Try: n}, nil)
		if outcome.Err == nil {
			if n != 3 || response.Text != "done" {
				t.Errorf("try %d answered %q", n, response.Text)
			}
			break
		}
		if !outcome.Retry || outcome.Counts || outcome.Err.Class != model.RateLimited {
			t.Fatalf("try %d: %+v", n, outcome)
		}
		waits = append(waits, outcome.Wait)
	}
	if len(waits) != 2 || waits[0] != 5*time.Second || waits[1] != 6500*time.Millisecond {
		t.Errorf("waits %v", waits)
	}
	if n := len(server.Requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// S0-87: a refused key is said once and not repeated.
func TestAuthOverHTTP(t *testing.T) {
	server := modeltest.New(t, modeltest.Fail(401, "no"))
	_, outcome := caller(t, server.URL()).Try(t.Context(), model.Request{Model: "m", Try: 1}, nil)
	if outcome.Retry || !outcome.Counts || outcome.Err == nil || outcome.Err.Reason() != "MODEL_AUTH" {
		t.Errorf("outcome %+v", outcome)
	}
}

// A refused connection opens the breaker, and what was cut is not an answer.
func TestOutageOverHTTP(t *testing.T) {
	c := caller(t, modeltest.RefusedURL(t))
	for n := range 2 * retry.OpenAfter {
		_, outcome := c.Try(t.Context(), model.Request{Model: "m", Try: 1}, nil)
		if outcome.Counts || !outcome.Retry || outcome.Sent != (n < retry.OpenAfter) {
			t.Errorf("call %d: %+v", n, outcome)
		}
	}
	server := modeltest.New(t, modeltest.Step{Text: []string{"half"}, Cut: true})
	response, outcome := caller(t, server.URL()).Try(t.Context(), model.Request{Model: "m", Try: 1}, nil)
	if response.Text != "" || outcome.Err == nil || outcome.Err.Class != model.CutStream || !outcome.Counts {
		t.Errorf("cut: %q %+v", response.Text, outcome)
	}
}

// Many turns at once: what says it was sent was sent.
func TestManyCallers(t *testing.T) {
	server := modeltest.New(t, modeltest.Step{Repeat: true, Text: []string{"ok"}})
	c := caller(t, server.URL())
	var sent atomic.Int64
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for range 20 {
				if _, outcome := c.Try(t.Context(), model.Request{Model: "m", Try: 1 + worker%2}, nil); outcome.Sent {
					sent.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := int64(len(server.Requests())); n != sent.Load() || n < 80 {
		t.Errorf("%d requests for %d sent tries", n, sent.Load())
	}
}
