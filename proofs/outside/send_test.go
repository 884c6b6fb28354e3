//go:build proof

package outside_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
)

// serve runs the services of a machine in this process, with waits that a test can
// wait for.
func (m *machine) serve(set func(*world.Options)) *world.World {
	m.t.Helper()
	o := world.Options{Home: m.home(), Environ: m.env}
	o.Registry.Sweep = 100 * time.Millisecond
	o.Registry.DeliveryWaits = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}
	if set != nil {
		set(&o)
	}
	return world.Start(m.t, o)
}

// R1: TestGatewayEndsBadly sends through a gateway that reports success and then exits 1,
// is killed, or is killed before it reports anything: what was reported is not sent again,
// and the repeat of what may have left carries the flag.
func TestGatewayEndsBadly(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.write("script.json", `{"version":"1.0.9","failures":[
		{"match":"exits","times":9,"end":"exit"},{"match":"killed","times":9,"end":"kill"},{"match":"silent","times":1,"end":"cut"}]}`)
	w := m.serve(nil)
	w.Create(t, agent, "")
	for _, text := range []string{"exits", "killed", "silent", "well"} {
		m.push("ann", "say: "+text)
	}
	m.delivered(5)
	w.Stop()
	var sends []string
	for _, s := range m.journal() {
		sends = append(sends, s.Text+" "+s.Maybe)
	}
	if got := strings.Join(sends, ", "); got != "exits false, killed false, silent false, silent true, well false" {
		t.Errorf("sent %s", got)
	}
	drill.Line("outside-send-ends sends=%d messages=4 flagged=1", len(sends))
}

// TestGatewayFails sends through a gateway that fails twice and is well again, and
// through one that never takes a message: the order stays, each reply is sent well
// once, the one that cannot be sent is on record and holds nobody up. S0-126 to
// S0-129; with the options of both versions.
func TestGatewayFails(t *testing.T) {
	for _, version := range []string{"1.0.9", "2.1.0"} {
		m := newMachine(t, t.TempDir())
		m.write("script.json", fmt.Sprintf(`{"version":%q,"failures":[
			{"match":"twice","times":2,"error":"the channel is slow"},{"match":"never","times":99,"error":"the peer has left"}]}`, version))
		w := m.serve(nil)
		w.Create(t, agent, "")
		for _, text := range []string{"one", "twice", "three", "never", "five"} {
			m.push("ann", "say: "+text)
		}
		m.delivered(4)
		var tries, well []string
		for _, s := range m.journal() {
			tries = append(tries, s.Text)
			if s.OK {
				well = append(well, s.Text)
			}
			if s.Session != "ann" || s.Peer != "ann" || s.Channel != channel {
				t.Errorf("xgw %s: sent %+v", version, s)
			}
		}
		if got := strings.Join(tries, " "); got != "one twice twice twice three never never never five" {
			t.Errorf("xgw %s: tried %s", version, got)
		}
		if got := strings.Join(well, " "); got != "one twice three five" {
			t.Errorf("xgw %s: sent %s", version, got)
		}
		records := w.Events(t, agent, "threads/peers/tui-main-ann", "type = 'record' AND subtype = 'error'")
		if len(records) != 1 || !strings.Contains(records[0].GetContent(), "the peer has left") {
			t.Errorf("xgw %s: error records %v", version, records)
		}
		w.Stop()
		drill.Line("outside-send xgw=%s tries=%d sent=%d dead=%d in_order=true", version, len(tries), len(well), len(records))
	}
}
