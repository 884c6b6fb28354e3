//go:build proof

package soak_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/invariant/running"
	"github.com/theclaw/agents/internal/testing/world"
)

// ttl of leases: two for each agent are renewed three times in it, by a machine
// that has other things to do as well.
const ttl = "3s"

// post is one process of the home, whichever it is at the moment.
type post struct {
	name    string
	args    []string
	metrics string
	temp    string
	p       *world.Process
	kills   int
	page    string   // its metrics as they were last seen
	samples []sample // since the last mark
	logs    []*world.Process
}

// sample is what a process held at one moment.
type sample struct {
	running.Resources
	rss int // MiB
}

// staff is every process of a home. They are started and killed by one goroutine;
// others only look at them.
type staff struct {
	t    *testing.T
	site *world.Site
	env  []string

	mu    sync.Mutex
	posts []*post // in the order of starting
}

func newStaff(t *testing.T, site *world.Site, chance *rand.Rand, env []string) *staff {
	t.Helper()
	s := &staff{t: t, site: site, env: env}
	for _, args := range [][]string{{"registry"}, {"deliverer"}, {"runner", "--name", "runner-1"}, {"runner", "--name", "runner-2"}} {
		p := &post{name: args[len(args)-1], metrics: port(t, chance), temp: t.TempDir()}
		p.args = append(args, "--metrics-listen", p.metrics, "--lease-ttl", ttl)
		s.posts = append(s.posts, p)
	}
	return s
}

// port is a free one below those that the kernel gives to connections, since it
// must still be free when a killed process is started again.
func port(t *testing.T, chance *rand.Rand) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprint("127.0.0.1:", 20000+chance.IntN(10000))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

func (s *staff) start(posts ...*post) {
	s.t.Helper()
	for _, p := range posts {
		next := s.site.StartWith(s.t, append([]string{"TMPDIR=" + p.temp}, s.env...), p.args...)
		s.mu.Lock()
		p.p, p.logs = next, append(p.logs, next)
		s.mu.Unlock()
	}
}

// kill is kill -9 of one that should be alive.
func (s *staff) kill(posts ...*post) {
	s.t.Helper()
	for _, p := range posts {
		select {
		case <-p.p.Done():
			s.t.Errorf("%s ended by itself:\n%s", p.name, p.p.Log())
		default:
		}
		p.p.Kill()
		p.kills++
	}
}

// measure answers what each process holds now; one that is being killed is left out.
func (s *staff) measure() map[string]sample {
	out := map[string]sample{}
	for _, p := range s.posts {
		s.mu.Lock()
		pid := p.p.Pid()
		s.mu.Unlock()
		r, err := running.Measure(pid, p.temp)
		if err != nil {
			continue
		}
		page, err := get("http://" + p.metrics + "/metrics")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(page, "\ngo_goroutines ")
		if _, err := fmt.Sscan(rest, &r.Goroutines); err != nil {
			continue
		}
		out[p.name] = sample{r, rss(pid)}
		s.mu.Lock()
		p.page = page
		s.mu.Unlock()
	}
	return out
}

// sampling keeps samples until done is closed.
func (s *staff) sampling(done <-chan struct{}, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		for name, m := range s.measure() {
			p := s.post(name)
			p.samples = append(p.samples, m)
		}
	}
}

func (s *staff) post(name string) *post {
	return s.posts[slices.IndexFunc(s.posts, func(p *post) bool { return p.name == name })]
}

// flat compares the median of the second quarter of the samples with that of the
// last, and answers both. The slack is for what depends on the moment: a garbage
// collection, a send under way, and for each agent two leases with a call. How many
// databases are open follows the load, and all may be in use at once, so they are
// told apart here; what they hold at rest is I19's.
func (p *post) flat(t *testing.T, agents int) string {
	t.Helper()
	if len(p.samples) < 8 {
		t.Errorf("%s: %d samples say nothing", p.name, len(p.samples))
		return ""
	}
	quarter := len(p.samples) / 4
	early, late := p.samples[quarter:2*quarter], p.samples[len(p.samples)-quarter:]
	said := fmt.Sprintf("%s samples=%d", p.name, len(p.samples))
	for _, k := range []struct {
		what  string
		of    func(sample) int
		slack int
	}{
		{"descriptors", func(m sample) int { return m.Descriptors }, 24},
		{"goroutines", func(m sample) int { return m.Goroutines }, 48 + 2*agents},
		{"rss_mib", func(m sample) int { return m.rss }, 16},
	} {
		before, after := median(early, k.of), median(late, k.of)
		if after > before+before/5+k.slack {
			t.Errorf("%s: %d %s in the last quarter, %d in the second", p.name, after, k.what, before)
		}
		said += fmt.Sprintf(" %s=%d->%d", k.what, before, after)
	}
	open := func(m sample) int { return m.Databases }
	return said + fmt.Sprintf(" databases=%d->%d", median(early, open), median(late, open))
}

func median(list []sample, of func(sample) int) int {
	var n []int
	for _, m := range list {
		n = append(n, of(m))
	}
	slices.Sort(n)
	return n[len(n)/2]
}

// end drains the processes in the reverse order of their starting.
func (s *staff) end() {
	s.t.Helper()
	for _, p := range slices.Backward(s.posts) {
		p.p.Signal(syscall.SIGTERM)
		if code := p.p.Exit(); code != 0 {
			s.t.Errorf("%s: exit %d:\n%s", p.name, code, p.p.Log())
		}
	}
}

// outputs are what the processes have said so far, in logs and metrics.
func (s *staff) outputs() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, p := range s.posts {
		out["metrics of "+p.name] = p.page
		for i, old := range p.logs {
			out[fmt.Sprintf("log %d of %s", i, p.name)] = old.Log()
		}
	}
	return out
}

// rss is the resident memory of a process in MiB.
func rss(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "statm"))
	if err != nil {
		return 0
	}
	var size, resident int
	_, _ = fmt.Sscan(string(b), &size, &resident)
	return resident * os.Getpagesize() >> 20
}

var browser = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) (string, error) {
	r, err := browser.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}
