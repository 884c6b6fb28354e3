//go:build proof

package outside_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/proofs/drill"
)

// TestGateway lets a gateway push N messages of ten peers with `thread push` while
// the notifier loses a third of its tasks: each is answered once and sent once, in
// the order of its peer, with no step by hand. S0-61, S0-70, S0-81, S0-120, S0-121,
// S0-124, S0-127, S0-129; CONTRACTS 1.5, 2.3, 4.1.
func TestGateway(t *testing.T) {
	const peers = 10
	n := max(drill.Size(t, "N", 40)/peers, 1)
	seed, _ := drill.Seed(t)
	m := newMachine(t, t.TempDir())
	m.notifier(30, seed)
	d := m.agentd("all")
	c := m.client()
	c.Create(t, agent, "")

	var mu sync.Mutex
	pushed := map[string]time.Time{} // when the push of a text had ended
	var g sync.WaitGroup
	for half := range 2 { // two at a time, and the machine is not only busy with pushing
		g.Go(func() {
			for i := range n * peers / 2 {
				peer := fmt.Sprint("p", half*peers/2+i%(peers/2))
				text := fmt.Sprintf("%s/%d", peer, i/(peers/2))
				m.push(peer, "say: "+text)
				mu.Lock()
				pushed[text] = time.Now()
				mu.Unlock()
			}
		})
	}
	g.Wait()
	all := m.delivered(n * peers)
	m.noLocks()
	m.await("the notifier's last task", func() bool { return m.tasks("pending") == 0 })

	last, first, took := map[string]string{}, []time.Duration{}, []time.Duration{}
	for _, s := range m.journal() {
		at, mine := pushed[s.Text]
		if !mine || !s.OK || s.Channel != channel || s.Session != s.Peer || !strings.HasPrefix(s.Text, s.Peer+"/") {
			t.Errorf("sent %+v", s)
		}
		delete(pushed, s.Text)
		if want := fmt.Sprintf("%s/%d", s.Peer, next(last[s.Peer])); s.Text != want {
			t.Errorf("%s got %s before %s", s.Peer, s.Text, want)
		}
		if last[s.Peer] == "" {
			first = append(first, s.At.Sub(at))
		}
		last[s.Peer] = s.Text
		took = append(took, s.At.Sub(at))
	}
	if len(pushed) != 0 || len(all) != n*peers {
		t.Errorf("%d sends for %d messages; not sent: %v\n%s", len(all), n*peers, pushed, d.Log())
	}
	slices.Sort(took)
	slices.Sort(first)
	drill.Line("outside messages=%d answered_once=%d tasks=%d tasks_lost=%d push_to_send_p50=%s p99=%s max=%s first_of_a_peer_max=%s seed=%d",
		n*peers, len(took), m.tasks("error")+m.tasks("done"), m.tasks("error"),
		of(took, .5), of(took, .99), of(took, 1), of(first, 1), seed)
}

// next is the number after the one at the end of a text.
func next(text string) int {
	i := -1
	_, _ = fmt.Sscanf(text[strings.LastIndex(text, "/")+1:], "%d", &i) // none: the first
	return i + 1
}

func of(sorted []time.Duration, part float64) time.Duration {
	return sorted[min(int(float64(len(sorted))*part), len(sorted)-1)].Round(time.Millisecond)
}

// TestHostilePeers is answered where the external tool's own way is closed: a slash
// in the source, a space in the path, and ids that a shell or a file system would
// take for something else. CONTRACTS 1.4, 2.2; SECURITY S8.
func TestHostilePeers(t *testing.T) {
	m := newMachine(t, filepath.Join(t.TempDir(), "a home"))
	m.notifier(0, 0)
	m.agentd("all")
	c := m.client()
	c.Create(t, agent, "")
	m.must("thread", "init", filepath.Join(m.user, "canary"))
	canary := filepath.Join(m.user, "touched")
	peers := []string{
		"grp-123/topic-456", "../../../etc/passwd", "..", "; touch " + canary, "$(touch " + canary + ")", "`touch " + canary + "`",
		"two\nlines\ttab", "it's \"quoted\"", "-v --help", "\u4f60\u597d \U0001F600 \u00e9", "\u202egnp.exe", "a:b", "%2F", "*?[x]", "\\",
		strings.Repeat("x", 200), strings.Repeat("\u4f60", 200),
	}
	for _, p := range peers {
		m.push(p, "say: hello")
	}
	m.delivered(len(peers))
	got := map[string]int{}
	for _, s := range m.journal() {
		if s.Text != "hello" || s.Session != s.Peer {
			t.Errorf("sent %+v", s)
		}
		got[s.Peer]++
	}
	for _, p := range peers {
		if got[p] != 1 {
			t.Errorf("%q was answered %d times", p, got[p])
		}
	}
	threads, err := os.ReadDir(m.thread("threads/peers"))
	if err != nil || len(threads) != len(peers) {
		t.Errorf("%d threads for %d peers, %v", len(threads), len(peers), err)
	}
	for _, dir := range threads {
		if got := m.must("thread", "info", "--thread", m.thread("threads/peers/"+dir.Name())); !strings.Contains(got, "- outbound\n") {
			t.Errorf("%s: %s", dir.Name(), got)
		}
	}
	if _, err := os.Lstat(canary); err == nil {
		t.Error("a shell read an id")
	}
	m.noLocks()
	drill.Line("outside-hostile peers=%d threads=%d answered_once=%d", len(peers), len(threads), len(got))
}
