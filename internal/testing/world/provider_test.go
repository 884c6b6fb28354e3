package world_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
)

// provider is a model on loopback that answers "ok", and holds those calls whose
// request has the word HOLD-ON until it is told to go on.
type provider struct {
	held chan struct{} // one for each call that is held
	free chan struct{} // closed: nothing is held any more

	mu     sync.Mutex
	bodies []string
}

// withProvider makes a home whose default provider is p.
func withProvider(t *testing.T, o world.Options) (*provider, world.Options) {
	t.Helper()
	p := &provider{held: make(chan struct{}, 100), free: make(chan struct{})}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	o.Home = filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "providers: {work: {base_url: \"" + s.URL + "/v1\", models: [m1]}}\n"
	if err := os.WriteFile(filepath.Join(o.Home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, o
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller went away
	}
	p.mu.Lock()
	p.bodies = append(p.bodies, string(body))
	p.mu.Unlock()
	if strings.Contains(string(body), "HOLD-ON") {
		p.held <- struct{}{}
		select {
		case <-p.free:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}`, "\n\ndata: [DONE]\n\n")
}

func (p *provider) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.bodies...)
}
