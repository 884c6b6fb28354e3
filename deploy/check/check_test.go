// Package check holds the compose files and the chart against the libraries of those
// who read them: compose-go, helm, and the types of Kubernetes. These are large, so
// this is a module of its own, outside of the workspace: `make deploy-check`.
package check

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func project(t *testing.T, files ...string) *types.Project {
	t.Helper()
	for i, f := range files {
		files[i] = filepath.Join("..", f)
	}
	o, err := cli.NewProjectOptions(files, cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The container is nobody, can write nothing but its home, and nobody comes in.
func TestCompose(t *testing.T) {
	s, err := project(t, "compose.yaml").GetService("agentd")
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case s.User != "65532:65532", !s.ReadOnly, s.Privileged, len(s.Ports) > 0:
		t.Errorf("user %q, read-only %v, privileged %v, ports %v", s.User, s.ReadOnly, s.Privileged, s.Ports)
	case !slices.Equal(s.CapDrop, []string{"ALL"}), len(s.CapAdd) > 0:
		t.Errorf("capabilities: drop %v, add %v", s.CapDrop, s.CapAdd)
	case !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}):
		t.Errorf("security %v", s.SecurityOpt)
	case s.StopGracePeriod == nil || s.StopGracePeriod.String() != "45s":
		t.Errorf("grace %v", s.StopGracePeriod)
	case len(s.Volumes) != 1 || s.Volumes[0].Target != "/var/lib/theclaw":
		t.Errorf("volumes %v", s.Volumes)
	}
	if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	wide, err := project(t, "compose.yaml", "compose.sandbox.yaml").GetService("agentd")
	if err != nil || !slices.Contains(wide.SecurityOpt, "seccomp=unconfined") || !wide.ReadOnly {
		t.Errorf("%v, %v", wide.SecurityOpt, err)
	}
	// The metrics are on a network without a way out, and nothing is published.
	p := project(t, "compose.yaml", "compose.metrics.yaml")
	scraped, err := p.GetService("agentd")
	if err != nil || !slices.Contains(scraped.Command, "--metrics-remote") || len(scraped.Ports) > 0 || !p.Networks["metrics"].Internal || !scraped.ReadOnly {
		t.Errorf("%v, %v, %v", scraped.Command, scraped.Ports, err)
	}
	if prometheus, err := p.GetService("prometheus"); err != nil || len(prometheus.Ports) > 0 || len(prometheus.Networks) != 1 {
		t.Errorf("%+v, %v", prometheus.Networks, err)
	}
}

// With metrics.from the metrics have a port that these peers alone may reach, in the one
// pod and in each part of a cluster; without it there is none (TestChart, TestListen).
func TestMetricsFrom(t *testing.T) {
	from := map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "prometheus"}}}}}
	cluster := map[string]any{
		"metrics": from, "listen": map[string]any{"secret": "theclaw-tls"},
		"cluster": map[string]any{"enabled": true, "database": map[string]any{"secrets": []any{map[string]any{"name": "db", "key": "dsn"}}, "to": []any{map[string]any{"podSelector": map[string]any{}}}}},
	}
	pods, policies := 0, 0
	for _, values := range []map[string]any{{"metrics": from}, {"metrics": from, "listen": listening}, cluster} {
		for name, object := range renderAll(t, values) {
			var pod *corev1.PodSpec
			switch o := object.(type) {
			case *appsv1.StatefulSet:
				pod = &o.Spec.Template.Spec
			case *appsv1.Deployment:
				pod = &o.Spec.Template.Spec
			case *networkingv1.NetworkPolicy:
				policies++
				open := 0
				for _, rule := range o.Spec.Ingress {
					if rule.Ports[0].Port.IntValue() == 9464 {
						open++
						if len(rule.From) != 1 || rule.From[0].PodSelector.MatchLabels["app"] != "prometheus" || len(rule.Ports) != 1 {
							t.Errorf("%s: %+v", name, rule)
						}
					}
				}
				if open != 1 {
					t.Errorf("%s: %d rules for the metrics", name, open)
				}
			}
			if pod == nil {
				continue
			}
			pods++
			c := pod.Containers[0]
			if i := slices.Index(c.Args, "--metrics-remote"); i < 2 || c.Args[i-1] != ":9464" || c.Args[i-2] != "--metrics-listen" {
				t.Errorf("%s: %v", name, c.Args)
			}
			if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" && p.ContainerPort == 9464 }) {
				t.Errorf("%s: %v", name, c.Ports)
			}
		}
	}
	if pods != 6 || policies != 6 {
		t.Errorf("%d pods, %d policies", pods, policies)
	}
}

// render answers the chart's objects by kind, each decoded strictly into its type.
func render(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, object := range renderAll(t, values) {
		out[strings.Split(name, " ")[0]] = object
	}
	return out
}

// renderAll answers them by kind and name.
func renderAll(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	chart, err := loader.LoadDir("../helm")
	if err != nil {
		t.Fatal(err)
	}
	full, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "x", Namespace: "agents"}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, full)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") || strings.HasSuffix(name, ".tpl") {
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var head struct {
				Kind     string `json:"kind"`
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if head.Kind == "" {
				continue // only comments are left
			}
			object := map[string]any{
				"StatefulSet": &appsv1.StatefulSet{}, "Deployment": &appsv1.Deployment{}, "ServiceAccount": &corev1.ServiceAccount{}, "Service": &corev1.Service{},
				"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}, "ConfigMap": &corev1.ConfigMap{}, "Ingress": &networkingv1.Ingress{},
			}[head.Kind]
			if object == nil {
				t.Fatalf("%s: unknown kind %q", name, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Errorf("%s: %v\n%s", name, err, doc)
			}
			out[head.Kind+" "+head.Metadata.Name] = object
		}
	}
	return out
}

// listening is a registry on TCP, for the pods of one other app.
var listening = map[string]any{
	"enabled": true, "secret": "theclaw-tls",
	"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "runners"}}}},
}

func TestChart(t *testing.T) {
	for _, values := range []map[string]any{nil, {"sandbox": true, "keysSecret": "keys", "listen": listening, "storage": map[string]any{"className": "fast"}}} {
		l := lint.RunAll("../helm", values, "agents")
		for _, m := range l.Messages {
			if !strings.Contains(fmt.Sprint(m), "icon is recommended") {
				t.Error(m)
			}
		}
		objects := render(t, values)
		if len(objects) != 5 {
			t.Fatalf("%d objects: %v", len(objects), objects)
		}
		s := objects["StatefulSet"].(*appsv1.StatefulSet).Spec
		pod := s.Template.Spec
		c := pod.Containers[0]
		if *s.Replicas != 1 || *pod.TerminationGracePeriodSeconds <= 30 || *pod.AutomountServiceAccountToken {
			t.Errorf("replicas %d, grace %d", *s.Replicas, *pod.TerminationGracePeriodSeconds)
		}
		if !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot ||
			*pod.SecurityContext.RunAsUser != 65532 || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%+v %+v", pod.SecurityContext, c.SecurityContext)
		}
		if c.Args[0] != "all" || c.StartupProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe == nil || (len(c.Ports) > 0) != (values["listen"] != nil) {
			t.Errorf("args %v, probes %v %v %v", c.Args, c.StartupProbe, c.ReadinessProbe, c.LivenessProbe)
		}
		if wanted := values["sandbox"] == true; (pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined) != wanted {
			t.Errorf("seccomp %v with sandbox %v", pod.SecurityContext.SeccompProfile.Type, wanted)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) && m.Name != s.VolumeClaimTemplates[0].Name {
				t.Errorf("volume %s is not there", m.Name)
			}
		}
		for name, selector := range map[string]map[string]string{
			"service": objects["Service"].(*corev1.Service).Spec.Selector, "set": s.Selector.MatchLabels,
			"budget": objects["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
			"policy": objects["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
		} {
			for k, v := range selector {
				if s.Template.Labels[k] != v {
					t.Errorf("%s selects %s=%s, the pod has %v", name, k, v, s.Template.Labels)
				}
			}
		}
		if p := objects["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec; len(p.PolicyTypes) != 2 || (len(p.Ingress) == 0) == (values["listen"] != nil) || len(p.Egress) < 2 {
			t.Errorf("policy %+v", p)
		}
	}
}

// With mTLS the keys come from the Secret, and only those whom the values name may
// come to the port. Without a Secret nothing is made.
func TestListen(t *testing.T) {
	objects := render(t, map[string]any{"listen": listening})
	pod := objects["StatefulSet"].(*appsv1.StatefulSet).Spec.Template.Spec
	c, start := pod.Containers[0], pod.InitContainers[0]
	if !slices.Equal(c.Args[len(c.Args)-4:], []string{"--listen", ":7443", "--tls", "/run/theclaw/tls"}) || c.Ports[0].ContainerPort != 7443 {
		t.Errorf("args %v, ports %v", c.Args, c.Ports)
	}
	if !*start.SecurityContext.ReadOnlyRootFilesystem || *start.SecurityContext.AllowPrivilegeEscalation || len(start.VolumeMounts) != 2 {
		t.Errorf("%+v", start)
	}
	for _, m := range start.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || m.Name == "secret" && (pod.Volumes[i].Secret.SecretName != "theclaw-tls" || !m.ReadOnly) || m.Name == "tls" && pod.Volumes[i].EmptyDir.Medium != corev1.StorageMediumMemory {
			t.Errorf("mount %+v of %+v", m, pod.Volumes)
		}
	}
	in := objects["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.Ingress
	if len(in) != 1 || len(in[0].From) != 1 || in[0].From[0].PodSelector.MatchLabels["app"] != "runners" || in[0].Ports[0].Port.IntValue() != 7443 {
		t.Errorf("ingress %+v", in)
	}
	if p := objects["Service"].(*corev1.Service).Spec.Ports; len(p) != 1 || p[0].Port != 7443 {
		t.Errorf("service %+v", p)
	}
	chart, err := loader.LoadDir("../helm")
	if err != nil {
		t.Fatal(err)
	}
	full, err := util.ToRenderValues(chart, map[string]any{"listen": map[string]any{"enabled": true}}, common.ReleaseOptions{Name: "x"}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (engine.Engine{Strict: true}).Render(chart, full); err == nil || !strings.Contains(err.Error(), "listen.secret names") {
		t.Errorf("without a Secret: %v", err)
	}
}

// A key that Kubernetes does not know is refused; else the test above says nothing.
func TestStrict(t *testing.T) {
	if err := yaml.UnmarshalStrict([]byte("spec: {replicaz: 1}"), &appsv1.StatefulSet{}); err == nil {
		t.Error("an unknown key was taken")
	}
	if !bytes.Contains([]byte(fmt.Sprint(render(t, map[string]any{"networkPolicy": map[string]any{"enabled": false}}))), []byte("StatefulSet")) {
		t.Error("nothing was rendered")
	}
}
