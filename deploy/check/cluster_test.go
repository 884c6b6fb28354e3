package check

import (
	"fmt"
	"maps"
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

// many are how many there are of each service, as docs/scaling.md says.
var many = map[string]int32{"registry": 3, "runner": 4, "deliverer": 2, "gateway": 2}

// clustered are the values that stand beside the chart, and changes to them.
func clustered(t *testing.T, change func(cluster map[string]any)) map[string]any {
	t.Helper()
	b, err := os.ReadFile("../helm/values-cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(b, &values); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(values["cluster"].(map[string]any))
	}
	return values
}

// Three registries, four runners, two deliverers and two gateways: on nodes apart, one at a time
// moved, each with its own key alone, and only registries know the database and reach it.
func TestClusterChart(t *testing.T) {
	for _, change := range []func(map[string]any){nil, func(c map[string]any) {
		c["spread"], c["settings"], c["providers"] = "preferred", "workdir:\n  sync: snapshot\n", "providers: {}\n"
		c["runner"].(map[string]any)["workdirClaim"] = "workdirs"
	}} {
		values := clustered(t, change)
		for _, m := range lint.RunAll("../helm", values, "agents").Messages {
			if !strings.Contains(fmt.Sprint(m), "icon is recommended") {
				t.Error(m)
			}
		}
		objects := renderAll(t, values)
		if len(objects) != 3+4*4 {
			t.Fatalf("%v", slices.Sorted(maps.Keys(objects)))
		}
		settings := objects["ConfigMap x-settings"].(*corev1.ConfigMap)
		if (len(settings.Data) == 2) != (change != nil) {
			t.Errorf("settings %v", settings.Data)
		}
		for part, n := range many {
			pod, replicas, selector := podOf(t, objects, part)
			if replicas != n {
				t.Errorf("%d of %s", replicas, part)
			}
			checkPod(t, part, pod)
			for name, s := range map[string]map[string]string{
				"service": objects["Service x-"+part].(*corev1.Service).Spec.Selector, "set": selector,
				"budget": objects["PodDisruptionBudget x-"+part].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
				"policy": objects["NetworkPolicy x-"+part].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
			} {
				if s["app.kubernetes.io/component"] != part || len(s) != 3 {
					t.Errorf("%s of %s selects %v", name, part, s)
				}
				for k, v := range s {
					if pod.Labels[k] != v {
						t.Errorf("%s of %s selects %s=%s, the pod has %v", name, part, k, v, pod.Labels)
					}
				}
			}
			checkPolicy(t, part, objects["NetworkPolicy x-"+part].(*networkingv1.NetworkPolicy).Spec)
		}
	}
	for what, change := range map[string]func(map[string]any){
		"cluster.database.secrets names": func(c map[string]any) { c["database"].(map[string]any)["secrets"] = []any{} },
		"for more databases": func(c map[string]any) {
			one := map[string]any{"name": "one", "key": "dsn"}
			c["database"].(map[string]any)["secrets"] = []any{one, one}
		},
		"cluster.database.to says": func(c map[string]any) { c["database"].(map[string]any)["to"] = []any{} },
	} {
		chart, err := loader.LoadDir("../helm")
		if err != nil {
			t.Fatal(err)
		}
		full, err := util.ToRenderValues(chart, clustered(t, change), common.ReleaseOptions{Name: "x"}, common.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (engine.Engine{Strict: true}).Render(chart, full); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func podOf(t *testing.T, objects map[string]any, part string) (pod corev1.PodTemplateSpec, replicas int32, selector map[string]string) {
	t.Helper()
	if s, ok := objects["StatefulSet x-"+part].(*appsv1.StatefulSet); ok {
		if s.Spec.ServiceName != "x-"+part || s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			t.Errorf("%+v", s.Spec)
		}
		return s.Spec.Template, *s.Spec.Replicas, s.Spec.Selector.MatchLabels
	}
	d, ok := objects["Deployment x-"+part].(*appsv1.Deployment)
	if !ok {
		t.Fatalf("no %s", part)
	}
	return d.Spec.Template, *d.Spec.Replicas, d.Spec.Selector.MatchLabels
}

func checkPod(t *testing.T, part string, pod corev1.PodTemplateSpec) {
	t.Helper()
	s, c := pod.Spec, pod.Spec.Containers[0]
	if !*s.SecurityContext.RunAsNonRoot || *s.SecurityContext.RunAsUser != 65532 || *s.AutomountServiceAccountToken || *s.TerminationGracePeriodSeconds <= 30 {
		t.Errorf("%s: %+v", part, s.SecurityContext)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GODEBUG" && strings.HasPrefix(e.Value, "schedtrace=") }) {
		t.Errorf("%s: GODEBUG is not in %v", part, c.Env)
	}
	if p := c.LivenessProbe; p == nil || !slices.Equal(p.Exec.Command[1:5], []string{"log", "level", "--service", part}) {
		t.Errorf("%s: liveness %+v", part, p)
	}
	for _, c := range append(s.InitContainers, c) {
		if !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", part, c.SecurityContext)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) && (m.Name != "home" || part != "registry") {
				t.Errorf("%s: volume %s is not there", part, m.Name)
			}
		}
	}
	apart := s.Affinity.PodAntiAffinity
	if len(apart.RequiredDuringSchedulingIgnoredDuringExecution)+len(apart.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("%s: %+v", part, apart)
	}
	i := slices.IndexFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == "secret" })
	if keys := s.Volumes[i].Secret.Items; len(keys) != 2 || keys[0].Key != "ca.pem" || keys[1].Key != part+".pem" {
		t.Errorf("%s has the keys %v", part, keys)
	}
	secrets := 0
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			secrets++
			if !slices.Contains(c.Args, "env:"+e.Name) {
				t.Errorf("%s is not used: %v", e.Name, c.Args)
			}
		}
	}
	args := strings.Join(c.Args, " ")
	want, database := "--registry dns:///x-registry:7443", 0
	if part == "registry" {
		want, database = "--dsn env:THECLAW_DSN", 1
	}
	if secrets != database || c.Args[0] != part || !strings.Contains(args, want) || !strings.Contains(args, "--listen $(POD_IP):7443") || !strings.Contains(args, "--tls /run/theclaw/tls") {
		t.Errorf("%s: args %q, %d Secrets", part, args, secrets)
	}
	if c.StartupProbe == nil || c.ReadinessProbe == nil || !slices.Contains(c.ReadinessProbe.Exec.Command, part) {
		t.Errorf("%s: probes", part)
	}
}

// checkPolicy holds that a registry reaches names and the database and nothing else,
// and a worker everything but the database.
func checkPolicy(t *testing.T, part string, p networkingv1.NetworkPolicySpec) {
	t.Helper()
	var ports []int
	for _, e := range p.Egress {
		for _, port := range e.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	want := []int{53, 53, 7443, 443}
	in := 1 // those with a certificate whom the values name
	if part == "registry" {
		want, in = []int{53, 53, 5432}, 4
	}
	if !slices.Equal(ports, want) || len(p.PolicyTypes) != 2 || len(p.Ingress) != 1 || len(p.Ingress[0].From) != in {
		t.Errorf("%s: out to %v, in from %+v", part, ports, p.Ingress)
	}
}

// The same in one file for one machine.
func TestClusterCompose(t *testing.T) {
	o, err := cli.NewProjectOptions([]string{filepath.Join("..", "compose-cluster.yaml")}, cli.WithoutEnvironmentResolution, cli.WithEnv([]string{"POSTGRES_PASSWORD=word"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts, homes := map[string]int32{}, map[string]bool{}
	for name, s := range p.Services {
		part, _, _ := strings.Cut(name, "-")
		if len(s.Ports) > 0 || s.Privileged || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: %v %v %v", name, s.Ports, s.Privileged, s.SecurityOpt)
		}
		if many[part] == 0 {
			continue
		}
		counts[part]++
		args := strings.Join(s.Command, " ")
		if s.User != "65532:65532" || !s.ReadOnly || s.Command[0] != part || !strings.Contains(args, "--listen "+name+":7443") || s.HealthCheck == nil || !slices.Contains(s.HealthCheck.Test, part) {
			t.Errorf("%s: %+v", name, s)
		}
		if len(s.Volumes) != 1 || s.Volumes[0].Target != "/var/lib/theclaw" || homes[s.Volumes[0].Source] {
			t.Errorf("%s has %v", name, s.Volumes)
		}
		homes[s.Volumes[0].Source] = true
		if v := s.Environment["GODEBUG"]; v == nil || !strings.HasPrefix(*v, "schedtrace=") {
			t.Errorf("%s: GODEBUG is not in %v", name, s.Environment)
		}
		_, knows := s.Environment["THECLAW_DSN"]
		_, reaches := s.Networks["database"]
		_, outside := s.Networks["outside"]
		if registry := part == "registry"; knows != registry || reaches != registry || outside == registry {
			t.Errorf("%s: database %v %v, outside %v", name, knows, reaches, outside)
		}
		for i := range many["registry"] {
			if part != "registry" && !strings.Contains(args, fmt.Sprintf("dns:///registry-%d:7443", i+1)) {
				t.Errorf("%s does not know registry %d: %s", name, i+1, args)
			}
		}
	}
	if !maps.Equal(counts, many) {
		t.Errorf("%v", counts)
	}
	if setup := p.Services["setup"]; setup.NetworkMode != "none" || len(setup.Volumes) != len(homes)+1 || setup.Restart != "" {
		t.Errorf("setup %+v", setup)
	}
	if p.Services["registry-1"].DependsOn["database"].Condition != types.ServiceConditionHealthy || !p.Networks["database"].Internal {
		t.Error("the database")
	}
	o.Environment = types.Mapping{}
	if _, err := o.LoadProject(t.Context()); err == nil {
		t.Error("without a password")
	}
}
