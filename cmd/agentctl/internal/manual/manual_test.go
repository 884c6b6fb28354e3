package manual

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A page says what the help says, whatever characters that has.
func TestPage(t *testing.T) {
	c := &cobra.Command{
		Use: "prune ID", Short: "Remove 'old' data",
		Long:    "Remove memory/<name>.md and ** here.\n\n.config is\nkept.\n\nA filter:\n  type = 'x'",
		Example: "  prune a --older-than 1d \\\n      --json",
		Run:     func(*cobra.Command, []string) {},
	}
	c.Flags().String("older-than", "30d", "minimum `age`")
	root := &cobra.Command{Use: "agentctl", Short: "x"}
	root.AddCommand(c, &cobra.Command{Use: "gone", Hidden: true, Run: c.Run})
	dir := filepath.Join(t.TempDir(), "man")
	names, err := write(root, dir, "v1")
	if err != nil || !slices.Equal(names, []string{"agentctl.1", "agentctl-prune.1"}) {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "agentctl-prune.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".TH \"AGENTCTL-PRUNE\" 1 \"\" \"agentctl v1\"", `agentctl\-prune \- Remove \(aqold\(aq data`, "Remove memory/<name>.md and ** here.\n.PP\n\\&.config is kept.\n",
		".nf\nA filter:\n  type = \\(aqx\\(aq\n.fi\n", "  prune a \\-\\-older\\-than 1d \\e\n      \\-\\-json\n.fi", "\\-\\-older\\-than age\nminimum age (default 30d)\n", `.SH SEE ALSO` + "\nagentctl(1)\n",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
}
