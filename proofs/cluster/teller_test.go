//go:build proof

package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// teller is a model that says many words, one after the other: time enough to lose the
// runner that hears them. What it says follows from what it is told.
type teller struct {
	url   string
	words int
	pause atomic.Int64 // after each word, in nanoseconds
}

var tellRule = regexp.MustCompile(`tell-[a-z0-9-]+-end`)

func newTeller(t *testing.T, words int, pause time.Duration) *teller {
	t.Helper()
	m := &teller{words: words}
	m.pause.Store(int64(pause))
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

// at makes a teller that is asked at another address than loopback's.
func (m *teller) at(t *testing.T, host string) *teller {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: m}}
	s.Start()
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

// providers is the providers.yaml of a runner that works with it.
func (m *teller) providers() string {
	return "default: work\nproviders:\n  work: {api: openai, base_url: \"" + m.url + "/v1\", models: [m1]}\n"
}

// tale is what it says of a key.
func (m *teller) tale(key string) string {
	var b strings.Builder
	for n := range m.words {
		fmt.Fprintf(&b, "%s-%d ", key, n)
	}
	return b.String()
}

func (m *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	asked := tellRule.FindAllString(string(body), -1)
	if len(asked) == 0 {
		http.Error(w, "nothing to tell of", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for word := range strings.SplitAfterSeq(m.tale(asked[len(asked)-1]), " ") {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", word)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Duration(m.pause.Load())):
		}
	}
	fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}
