//go:build proof

package provider_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	"github.com/theclaw/agents/proofs/program"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	program.Main(m)
}

const (
	// settle is how long a message may take to its fate; one that has none by then waits.
	settle = 25 * time.Second
	// away is how long a message must have waited for a provider that is away, which is
	// longer than all its tries take.
	away = 8 * time.Second
	// warm is how many good answers are there before the first bad one: the tries of a
	// runner that repeat a call are a tenth of all.
	warm = 500
	// mostMemory bounds what agentd may ever take, in MiB, while all rows are answered at once.
	mostMemory = 1536
)

// TestProviderFaults sends one message to an agent for each row of the table, all at once,
// while another agent talks with a healthy provider. Each message must get its fate with
// its cause, for its number of calls; then the provider is healed: what waits is answered,
// and every conversation goes on.
func TestProviderFaults(t *testing.T) {
	f := &fake{rows: table(), calls: map[int]int{}, told: map[int][]string{}}
	server := httptest.NewServer(f)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s := world.NewSite(t, program.Agentd(t))
	providers(t, s.Home, server.URL, f.rows)
	p := s.Start(t, "all", "--lease-ttl", "1m") // a busy machine must not let a second try begin
	s.Serving(t, p, "registry", "runner", "deliverer")
	ids := make([]int64, len(f.rows))
	for i, r := range f.rows {
		if r.outage { // what waits is probed each 30 s only
			s.Create(t, name(i), config(i, r.timeout))
			ids[i] = push(t, s.Client, name(i), "hi")
		}
	}
	for i, r := range f.rows {
		if ids[i] == 0 {
			s.Create(t, name(i), config(i, r.timeout))
		}
	}
	s.Create(t, healthy, config(-1, ""))
	talk(t, s.Client, warm, nil)

	var others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer others.Wait()
	defer stop()
	var took []time.Duration
	others.Go(func() { took = talk(t, s.Client, 1<<20, ctx.Done()) })

	for i := range f.rows {
		if ids[i] == 0 {
			ids[i] = push(t, s.Client, name(i), "hi")
		}
	}
	begun := time.Now()
	counts, failed := map[string]int{}, 0
	for _, i := range f.order() {
		r, wait := f.rows[i], settle
		if r.outage {
			wait = away
		}
		turn := s.Ask(t, name(i), ids[i], max(wait-time.Since(begun), 0))
		counts[fate(turn)]++
		if problem := f.judge(t, s.Client, i, turn); problem != "" {
			failed++
			t.Errorf("%s: %s", r.name, problem)
		}
	}
	stop()
	others.Wait()
	f.healed.Store(true)
	again := make([]int64, len(f.rows))
	for i := range f.rows {
		again[i] = push(t, s.Client, name(i), "again")
	}
	lost, healed := 0, time.Now()
	for i, r := range f.rows {
		first := s.Ask(t, name(i), ids[i], max(settle-time.Since(healed), 0))
		second := s.Ask(t, name(i), again[i], max(settle-time.Since(healed), 0))
		if fate(first) == waits || fate(second) != replied {
			lost++
			t.Errorf("%s: with a healthy provider: %v, then %v", r.name, first, second)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, problem := range f.refused {
		failed++
		t.Errorf("a request that no provider takes: %s", problem)
	}
	if f.strays > 0 {
		t.Errorf("%d redirects were followed", f.strays)
	}
	paid := 0
	for _, n := range f.calls {
		paid += n
	}
	slices.Sort(took)
	if len(took) == 0 {
		t.Fatal("the healthy conversation said nothing")
	}
	peak := memory(t, p.Pid())
	if peak > mostMemory {
		t.Errorf("agentd took %d MiB", peak)
	}
	drill.Line("provider-faults cases=%d replied=%d dead=%d waiting=%d paid_calls=%d lost=%d wrong=%d followed_redirects=%d healthy_messages=%d healthy_p50_ms=%d healthy_max_ms=%d peak_mib=%d",
		len(f.rows), counts[replied], counts[dead], counts[waits], paid, lost, failed, f.strays, len(took), took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds(), peak)
}

// order is the rows with a fate first, so that those which wait take no time of their own.
func (f *fake) order() (list []int) {
	for _, outage := range []bool{false, true} {
		for i, r := range f.rows {
			if r.outage == outage {
				list = append(list, i)
			}
		}
	}
	return list
}

// judge returns what is wrong with the fate of a row's message.
func (f *fake) judge(t *testing.T, c world.Client, i int, turn *registryv1.Turn) string {
	f.mu.Lock()
	n, told := f.calls[i], strings.Join(f.told[i], "\n")
	f.mu.Unlock()
	r := f.rows[i]
	want, calls := r.want, r.calls
	if r.outage {
		want, calls = waits, n // as often as it is asked meanwhile
	}
	said := turn.GetError()
	if fate(turn) == replied {
		said = c.Reply(t, turn)
	}
	switch {
	case fate(turn) != want || want != waits && !strings.Contains(said, r.cause):
		return fmt.Sprintf("%s (%.300q), want %s (%q), after %d calls", fate(turn), said, want, r.cause, n)
	case want == waits && turn.GetErrorAttempts() > 0:
		return fmt.Sprintf("it waits and has spent %d tries", turn.GetErrorAttempts())
	case n != calls || n == 0:
		return fmt.Sprintf("%d calls were paid, want %d (%.300q)", n, calls, said)
	case !strings.Contains(told, r.told):
		return fmt.Sprintf("the model was told %.300q, want %q", told, r.told)
	}
	return ""
}

func fate(turn *registryv1.Turn) string {
	switch turn.GetFate() {
	case registryv1.Fate_FATE_UNSPECIFIED:
		return waits
	case registryv1.Fate_FATE_REPLIED:
		return replied
	case registryv1.Fate_FATE_DEAD:
		return dead
	default:
		return strings.ToLower(strings.TrimPrefix(turn.GetFate().String(), "FATE_"))
	}
}

const healthy = "healthy"

func name(i int) string { return fmt.Sprintf("a%d", i) }

// config is that of the agent of a row; its tools run without a sandbox, which not every
// machine has.
func config(i int, timeout string) string {
	out := fmt.Sprintf("outbound: []\nsandbox: {mode: \"off\"}\npai: {provider: p%d}", i)
	if i < 0 {
		out = strings.Replace(out, "p-1", healthy, 1)
	}
	if timeout != "" {
		out += "\nrun: {timeout: " + timeout + "}"
	}
	return out
}

// providers writes the settings of one provider for each row and of a healthy one.
func providers(t *testing.T, home, url string, rows []row) {
	t.Helper()
	text := fmt.Sprintf("default: %[1]s\nproviders:\n  %[1]s: {base_url: \"%[2]s/-1/v1\", models: [m1]}\n", healthy, url)
	for i, r := range rows {
		api := "openai"
		if r.messages {
			api = "anthropic"
		}
		text += fmt.Sprintf("  p%d: {api: %s, base_url: \"%s/%d/v1\", models: [m1]}\n", i, api, url, i)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func push(t *testing.T, c world.Client, agent, text string) int64 {
	t.Helper()
	id, err := c.Push(t.Context(), agent, world.Peer("bob"), text, "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// talk has n messages of a few conversations answered by the healthy agent, one after the
// other in each, and returns how long each took. It ends early with done.
func talk(t *testing.T, c world.Client, n int, done <-chan struct{}) (took []time.Duration) {
	const peers = 4
	var mu sync.Mutex
	var g sync.WaitGroup
	for i := range peers {
		g.Go(func() {
			for range n / peers {
				select {
				case <-done:
					return
				default:
				}
				begun := time.Now()
				id, err := c.Push(t.Context(), healthy, world.Peer(fmt.Sprint("peer", i)), "hi", "")
				if err != nil {
					t.Errorf("push to the healthy agent: %v", err)
					return
				}
				r, err := c.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: healthy, InboxId: id, Wait: durationpb.New(settle)})
				if err != nil || fate(r.GetTurn()) != replied {
					t.Errorf("the healthy conversation: %v %v", r.GetTurn(), err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	g.Wait()
	return took
}

// memory is the most memory that a process has taken so far, in MiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("VmHWM of %.200q: %v", b, err)
	}
	return kib >> 10
}
