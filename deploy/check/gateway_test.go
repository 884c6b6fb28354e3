package check

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// published are the values of a gateway behind an ingress, with changes.
func published(changes map[string]any) map[string]any {
	values := map[string]any{
		"publicURL": "https://claw.example.org", "trustedProxies": []any{"10.244.0.0/16"},
		"from":    []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "ingress-nginx"}}}},
		"ingress": map[string]any{"enabled": true, "className": "nginx", "tlsSecret": "claw-tls"},
	}
	maps.Copy(values, changes)
	return values
}

// A public address of the gateway, in the one pod and in a cluster: an ingress with TLS for the
// posts alone, a port that its peers alone may reach, and settings that trust them. Without it
// there is none of that (TestChart, TestClusterChart).
func TestPublicGateway(t *testing.T) {
	cluster := clustered(t, nil)
	cluster["gateway"] = published(nil)
	for name, values := range map[string]map[string]any{"x": {"gateway": published(nil)}, "x-gateway": cluster} {
		objects := renderAll(t, values)
		service, ok := objects["Service x-http"].(*corev1.Service)
		ingress, also := objects["Ingress x"].(*networkingv1.Ingress)
		if !ok || !also {
			t.Fatalf("%s: %v", name, slices.Sorted(maps.Keys(objects)))
		}
		var pod corev1.PodTemplateSpec
		switch o := firstOf(objects["StatefulSet "+name], objects["Deployment "+name]).(type) {
		case *appsv1.StatefulSet:
			pod = o.Spec.Template
		case *appsv1.Deployment:
			pod = o.Spec.Template
		}
		for k, v := range service.Spec.Selector {
			if pod.Labels[k] != v {
				t.Errorf("%s: the service selects %s=%s, the pod has %v", name, k, v, pod.Labels)
			}
		}
		c := pod.Spec.Containers[0]
		env := map[string]bool{}
		for _, e := range c.Env {
			env[e.Name+"="+e.Value] = true
		}
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "http" && p.ContainerPort == 18789 }) || !env["PORT=18789"] || !env["HOST="] && !env["HOST=$(POD_IP)"] {
			t.Errorf("%s: %v %v", name, c.Ports, c.Env)
		}
		rule := ingress.Spec.Rules[0]
		path := rule.HTTP.Paths[0]
		if rule.Host != "claw.example.org" || ingress.Spec.TLS[0].SecretName != "claw-tls" || ingress.Spec.TLS[0].Hosts[0] != rule.Host || *ingress.Spec.IngressClassName != "nginx" ||
			len(rule.HTTP.Paths) != 1 || path.Path != "/hooks/" || path.Backend.Service.Name != service.Name || path.Backend.Service.Port.Name != service.Spec.Ports[0].Name {
			t.Errorf("%s: %+v", name, ingress.Spec)
		}
		open := 0
		for policy, object := range objects {
			p, ok := object.(*networkingv1.NetworkPolicy)
			if !ok {
				continue
			}
			for _, in := range p.Spec.Ingress {
				if in.Ports[0].Port.IntValue() != 18789 {
					continue
				}
				open++
				if policy != "NetworkPolicy "+name || len(in.From) != 1 || in.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "ingress-nginx" {
					t.Errorf("%s: %+v", policy, in)
				}
			}
		}
		if open != 1 {
			t.Errorf("%s: %d rules for the port", name, open)
		}
	}
	var settings struct {
		Gateway struct {
			URL     string   `json:"public_url"`
			Proxies []string `json:"trusted_proxies"`
		} `json:"gateway"`
	}
	text := renderAll(t, cluster)["ConfigMap x-gateway"].(*corev1.ConfigMap).Data["theclaw.yaml"]
	if err := yaml.UnmarshalStrict([]byte(text), &settings); err != nil || settings.Gateway.URL != "https://claw.example.org" || !slices.Equal(settings.Gateway.Proxies, []string{"10.244.0.0/16"}) {
		t.Errorf("%v\n%s", err, text)
	}
	for what, changes := range map[string]map[string]any{
		"is https://HOST":        {"publicURL": "http://claw.example.org"},
		"gateway.trustedProxies": {"trustedProxies": []any{}},
		"gateway.from says":      {"from": []any{}},
		"tlsSecret names":        {"ingress": map[string]any{"enabled": true}},
		"needs gateway.public":   {"publicURL": ""},
	} {
		chart, err := loader.LoadDir("../helm")
		if err != nil {
			t.Fatal(err)
		}
		full, err := util.ToRenderValues(chart, map[string]any{"gateway": published(changes)}, common.ReleaseOptions{Name: "x"}, common.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (engine.Engine{Strict: true}).Render(chart, full); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// firstOf returns the first that is there.
func firstOf(objects ...any) any {
	for _, o := range objects {
		if o != nil {
			return o
		}
	}
	return nil
}
