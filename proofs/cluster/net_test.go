//go:build proof

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/proofs/program"
)

// The networks of the proof. Each registry, runner and deliverer is in a network
// namespace of its own, which has a cable to the bridge of the services; a registry has
// another one to that of the database. The test, people and the model are at the bridges.
const (
	services = "10.89.0" // eth0
	database = "10.90.0" // eth1
)

// apart runs a test of this program in a network of its own: nothing of it is left when
// the test has ended, however it did. It answers true in there.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv("APART") != "" {
		return true
	}
	need.Program(t, "ip", "iproute2")
	need.Namespaces(t, "--net", "--mount")
	// The names of namespaces are files: ours are in a directory of our own, too.
	const inside = "mkdir -p /run/netns && mount -t tmpfs netns /run/netns && "
	// A kernel may have namespaces and no cables.
	probe := inside + "ip netns add probe && ip link add name one type veth peer name two netns probe && ip link add name hub type bridge"
	if out, err := exec.Command("unshare", "--net", "--mount", "sh", "-c", probe).CombinedOutput(); err != nil {
		need.Missing(t, fmt.Sprintf("a network between namespaces (%v: %s)", err, strings.TrimSpace(string(out))), "run the tests as root, on a kernel with veth and bridge")
	}
	cmd := exec.Command("unshare", "--net", "--mount", "sh", "-c", inside+`exec "$0" "$@"`, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "1h")
	cmd.Env = append(os.Environ(), "APART=1", "AGENTD="+program.Agentd(t).Path)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Errorf("in a network of its own: %v", err)
	}
	return false
}

// ip runs ip with the words of a line.
func ip(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// wire makes the bridges, and a cluster that listens at the one of the database.
func wire(t *testing.T) *pgtest.Cluster {
	t.Helper()
	ip(t, "link set lo up")
	for name, net := range map[string]string{"services": services, "database": database} {
		ip(t, "link add name %s type bridge", name)
		ip(t, "addr add %s.1/24 dev %s", net, name)
		ip(t, "link set %s up", name)
	}
	hba := filepath.Join(t.TempDir(), "hba")
	if err := os.WriteFile(hba, []byte("local all all trust\nhost all all "+database+".0/24 trust\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(hba); dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return pgtest.Start(t, "listen_addresses = '"+database+".1'", "hba_file = '"+hba+"'")
}

// cabled is the place of a process in a namespace of its own; the cables are laid when
// it is first started. n is its number in the networks.
func cabled(t *testing.T) func(p *part) ([]string, string, []string) {
	t.Helper()
	numbers := map[*part]int{}
	return func(p *part) ([]string, string, []string) {
		n, there := numbers[p]
		if !there {
			n = len(numbers) + 10
			numbers[p] = n
			p.space = fmt.Sprintf("ns%d", n)
			ip(t, "netns add %s", p.space)
			ip(t, "-n %s link set lo up", p.space)
			p.cable(t, "services", services, "eth0", n)
			if p.kind == "registry" {
				p.cable(t, "database", database, "eth1", n)
			}
		}
		return []string{"ip", "netns", "exec", p.space}, fmt.Sprintf("%s.%d", services, n), nil
	}
}

func (p *part) cable(t *testing.T, bridge, net, name string, n int) {
	t.Helper()
	ip(t, "link add name %s type veth peer name %s netns %s", p.plug(name), name, p.space)
	ip(t, "-n %s addr add %s.%d/24 dev %s", p.space, net, n, name)
	ip(t, "-n %s link set %s up", p.space, name)
	ip(t, "link set %s master %s up", p.plug(name), bridge)
}

// plug is the other end of a cable.
func (p *part) plug(name string) string { return p.space + name }

// cut takes a process off a network: its cable is pulled, which it sees, or what it
// sends and is sent is lost without a word.
func (p *part) cut(t *testing.T, name string, silently bool) {
	t.Helper()
	if silently {
		ip(t, "link set %s nomaster", p.plug(name))
	} else {
		ip(t, "-n %s link set %s down", p.space, name)
	}
}

// heal undoes cut.
func (p *part) heal(t *testing.T, name, bridge string, silently bool) {
	t.Helper()
	if silently {
		ip(t, "link set %s master %s", p.plug(name), bridge)
	} else {
		ip(t, "-n %s link set %s up", p.space, name)
	}
}
