package deploy_test

import (
	"os"
	"regexp"
	"testing"
)

// What the figures of docs/scaling.md were measured with is what a cluster is given
// (docs/decisions/016).
func TestClusterIsDeployedAsMeasured(t *testing.T) {
	setting := regexp.MustCompile(`(?:GODEBUG: |godebug: |CLUSTER_GODEBUG := )(\S+)`)
	said := map[string]string{}
	for _, file := range []string{"../Makefile", "compose-cluster.yaml", "helm/values.yaml"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := setting.FindAllSubmatch(b, -1)
		if len(found) != 1 {
			t.Fatalf("%s says GODEBUG %d times", file, len(found))
		}
		said[string(found[0][1])] = file
	}
	if len(said) != 1 {
		t.Errorf("they differ: %v", said)
	}
}
