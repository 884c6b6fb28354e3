// Package deploy_test holds what is deployed against what there is: units, rules,
// dashboard, image. Each check that needs a program says so where it is missing. What
// needs large libraries (compose, helm) is in deploy/check, a module of its own.
package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/internal/testing/need"
)

// systemd-analyze answers 0 for keys it does not know, so what it prints decides.
func TestUnits(t *testing.T) {
	analyze := need.Program(t, "systemd-analyze", "systemd")
	units, err := filepath.Glob("systemd/*.[st]*[er]")
	if err != nil || len(units) != 4 {
		t.Fatal(units, err)
	}
	dir := t.TempDir()
	var names []string
	for _, unit := range units {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The programs need not be installed where this is checked.
		text := regexp.MustCompile(`/usr/local/bin/\w+`).ReplaceAll(b, []byte("/bin/true"))
		name := strings.Replace(filepath.Base(unit), "@", "@2", 1)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Join(dir, name))
	}
	verify := func(args ...string) string {
		c := exec.Command(analyze, append([]string{"verify", "--recursive-errors=no"}, args...)...)
		c.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "SYSTEMD_COLORS=0")
		out, err := c.CombinedOutput()
		if err != nil && len(out) == 0 {
			return err.Error()
		}
		return string(out)
	}
	if out := verify(names...); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	// And this is what it looks like when a key is wrong.
	wrong := filepath.Join(dir, "wrong.service")
	if err := os.WriteFile(wrong, []byte("[Service]\nExecStart=/bin/true\nProtectEverything=yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(wrong); !strings.Contains(out, "ProtectEverything") {
		t.Errorf("a wrong key is not told: %q", out)
	}
}

func TestAlertsCompileAndFire(t *testing.T) {
	promtool := need.Program(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "theclaw.rules.yml"}, {"check", "config", "prometheus.yml"}, {"check", "config", "compose.yml"}, {"test", "rules", "theclaw.test.yml"}} {
		c := exec.Command(promtool, args...)
		c.Dir = "prometheus"
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each rule is quiet in one test and fires in another.
func TestEveryAlertFires(t *testing.T) {
	b, err := os.ReadFile("prometheus/theclaw.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expect) > 0 {
				fires[a.Name] = true
			} else {
				quiet[a.Name] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: fires in a test %v, is quiet in one %v", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	b, err := os.ReadFile("prometheus/theclaw.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 9 {
		t.Fatalf("%+v", file)
	}
	return file.Groups[0].Rules
}

// queries are the expressions of rules and dashboard, by where they stand.
func queries(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range rules(t) {
		out["alert "+r.Alert] = r.Expr
	}
	b, err := os.ReadFile("grafana/theclaw.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(b, &board); err != nil || len(board.Panels) == 0 {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			out["panel "+p.Title] += " " + target.Expr
		}
	}
	return out
}

// described collects the names of what is registered, also of what has no series yet.
type described map[string]bool

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d described) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.Describe(ch)
	}()
	for desc := range ch {
		d[fqName.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

func (d described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = d.Register(c) // answers nil
	}
}

func (described) Unregister(prometheus.Collector) bool { return false }

// Whatever a rule or a panel names is there.
func TestMetricsExist(t *testing.T) {
	known := described{"up": true, "grpc_server_handled_total": true, "grpc_server_handling_seconds": true}
	obs.NewRegistryMetrics(known)
	obs.NewRunnerMetrics(known)
	obs.NewDelivererMetrics(known)
	obs.NewGatewayMetrics(known)
	families, err := obs.NewRegistry().Gather()
	if err != nil || len(known) < 20 {
		t.Fatal(known, err)
	}
	for _, f := range families {
		known[f.GetName()] = true
	}
	name := regexp.MustCompile(`\b(theclaw|grpc|go|process)_[a-z0-9_]+`)
	label := regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)`)
	used := map[string]bool{}
	for where, expr := range queries(t) {
		found := name.FindAllString(label.ReplaceAllString(expr, ""), -1)
		if len(found) == 0 && !strings.Contains(expr, "up{") {
			t.Errorf("%s asks for nothing of ours: %s", where, expr)
		}
		for _, n := range found {
			base := n
			if !known[base] {
				base = regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(n, "")
			}
			if !known[base] {
				t.Errorf("%s names %s, which nobody counts", where, n)
			}
			used[base] = true
		}
	}
	for n := range known { // and what we count is shown
		if strings.HasPrefix(n, "theclaw_") && !used[n] {
			t.Errorf("%s is on no panel and in no alert", n)
		}
	}
}

// Whoever is woken finds what to do.
func TestAlertsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if !regexp.MustCompile("(?m)^\\| `" + r.Alert + "` \\| .+ \\| .+ \\|$").Match(page) {
			t.Errorf("%s has no row in docs/operations.md that says what to do", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "look" {
			t.Errorf("%s: severity is %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s says nothing", r.Alert)
		}
	}
}
