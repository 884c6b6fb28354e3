//go:build proof

package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
)

const (
	// crowd is how many conversations each agent with a broken receiver has: three such
	// agents have more than a deliverer has workers.
	crowd = 40
	// late is what no reply to a healthy receiver may take, and what counts as delayed in
	// the control.
	late = 5 * time.Second
)

// broken are the ways in which a receiver does not take a reply.
var broken = map[string]http.HandlerFunc{
	"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	"429": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	},
	"reset": func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // the server listens on TCP
		_ = c.Close()
	},
	"hang": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"drip": func(w http.ResponseWriter, r *http.Request) {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	},
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken/elsewhere" {
			<-r.Context().Done()
			return
		}
		http.Redirect(w, r, "/broken/elsewhere", http.StatusTemporaryRedirect)
	},
}

// receiver is one host: a path that is broken in one way, and one that is well.
type receiver struct {
	way  string
	url  string
	hits atomic.Int64 // of the broken path

	mu     sync.Mutex
	delays map[string]time.Duration // from reply to arrival, by thread
}

func newReceiver(t *testing.T, way string) *receiver {
	r := &receiver{way: way, delays: map[string]time.Duration{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/broken/", func(w http.ResponseWriter, req *http.Request) {
		r.hits.Add(1)
		_, _ = io.Copy(io.Discard, req.Body) // else the server does not see that the caller has gone
		broken[way](w, req)
	})
	mux.HandleFunc("/well", func(_ http.ResponseWriter, req *http.Request) {
		var m struct {
			ThreadID  string    `json:"thread_id"`
			CreatedAt time.Time `json:"created_at"`
		}
		if json.NewDecoder(req.Body).Decode(&m) != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, again := r.delays[m.ThreadID]; !again {
			r.delays[m.ThreadID] = time.Since(m.CreatedAt)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	r.url = s.URL
	return r
}

func (r *receiver) arrived() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Duration
	for _, d := range r.delays {
		out = append(out, d)
	}
	return out
}

// TestIsolation gives six hosts two agents each, under one channel name: the receiver of
// one is broken in a way of its own at one path, for each of its conversations, and that of
// the other is well at another path. Each reply to those that are well arrives at once. In
// the control a breaker stands for a channel's name and the host, as it once did: a third
// of them and more is late or does not arrive. F2.
func TestIsolation(t *testing.T) {
	n := drill.Size(t, "N", 20)
	figures := isolate(t, program.Agentd(t), n)
	if figures.lost > 0 || figures.late > 0 {
		t.Errorf("replies to healthy receivers: %d of %d lost, %d late; by way: %v", figures.lost, figures.all, figures.late, figures.ways)
	}
	control := isolate(t, coarse(t), n)
	if bad := control.lost + control.late; bad*3 < control.all {
		t.Errorf("in the control only %d of %d replies are lost or late: the test proves nothing", bad, control.all)
	}
	drill.Line("isolation ways=%d agents=%d replies=%d lost=%d late=%d p50=%v max=%v | one breaker for a host (control): lost=%d late=%d of %d",
		len(broken), 2*len(broken), figures.all, figures.lost, figures.late, figures.p50.Round(time.Millisecond), figures.most.Round(time.Millisecond), control.lost, control.late, control.all)
}

// figures are those of the replies to receivers that are well.
type figures struct {
	all, lost, late int
	p50, most       time.Duration
	ways            map[string]int // lost or late, by what is broken on the same host
}

// coarse is agentd with the breakers of the control.
func coarse(t *testing.T) world.Program {
	t.Helper()
	p := program.Agentd(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X github.com/theclaw/agents/services/deliverer/internal/breaker.coarse=1",
		"-o", dir, "github.com/theclaw/agents/cmd/agentd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the control: %v\n%s", err, out)
	}
	p.Path = filepath.Join(dir, "agentd")
	return p
}

// isolate sends n replies to each receiver that is well.
func isolate(t *testing.T, p world.Program, n int) figures {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var hosts []*receiver
	for way := range broken {
		hosts = append(hosts, newReceiver(t, way))
	}
	s := world.NewSite(t, p)
	(&model{answer: func(w http.ResponseWriter, _ *http.Request, _ string) { say(w, "ok") }}).with(t, s.Home)
	agentd := s.Start(t, "all")
	defer agentd.Kill()
	s.Serving(t, agentd, "registry", "runner", "deliverer")
	push := func(agent, peer string) {
		if _, err := s.Push(ctx, agent, world.Peer(peer), "hi", ""); err != nil {
			t.Fatalf("push to %s: %v", agent, err)
		}
	}
	for _, h := range hosts {
		for _, path := range []string{"broken", "well"} {
			url := h.url + "/" + path
			if path == "broken" {
				url += "/"
			}
			s.Create(t, path+"-"+h.way, fmt.Sprintf("outbound: [{thread_pattern: '**', via: hook}]\nchannels: {hook: {type: webhook, url: '%s', allow_private: true}}", url))
		}
	}
	for i := range crowd {
		for _, h := range hosts {
			push("broken-"+h.way, fmt.Sprint("p", i))
		}
	}
	poll(ctx, t, "each broken receiver is tried", func() bool {
		return !slices.ContainsFunc(hosts, func(h *receiver) bool { return h.hits.Load() == 0 })
	})
	for i := range n {
		for _, h := range hosts {
			push("well-"+h.way, fmt.Sprint("p", i))
		}
		pauseFor(ctx, 200*time.Millisecond)
	}
	all := func() bool {
		return !slices.ContainsFunc(hosts, func(h *receiver) bool { return len(h.arrived()) < n })
	}
	for end := time.Now().Add(late + time.Second); !all() && time.Now().Before(end); {
		pauseFor(ctx, 20*time.Millisecond)
	}
	out := figures{all: n * len(hosts), ways: map[string]int{}}
	var delays []time.Duration
	for _, h := range hosts {
		got := h.arrived()
		slow := len(slices.DeleteFunc(slices.Clone(got), func(d time.Duration) bool { return d <= late }))
		out.lost += n - len(got)
		out.late += slow
		if bad := n - len(got) + slow; bad > 0 {
			out.ways[h.way] = bad
		}
		delays = append(delays, got...)
	}
	if slices.Sort(delays); len(delays) > 0 {
		out.p50, out.most = delays[len(delays)/2], delays[len(delays)-1]
	}
	return out
}

// poll waits for what only the receivers see.
func poll(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		if ctx.Err() != nil {
			t.Fatalf("%s: never", what)
		}
		pauseFor(ctx, 10*time.Millisecond)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
