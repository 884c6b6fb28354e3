package approvals

import (
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/fault"
)

// A short form stands for one id, or for none.
func TestNamed(t *testing.T) {
	var ids []string
	for _, end := range []string{"00aaaaaa", "00bbbbbb", "01bbbbbb"} {
		ids = append(ids, "019aa2c1f3e"+end)
	}
	list := func(after string, limit int) ([]string, error) {
		i := slices.Index(ids, after) + 1
		return ids[i:min(i+limit, len(ids))], nil
	}
	for given, want := range map[string]string{
		"ap-aaaaaa": ids[0], "AP-AAAAAA": ids[0], "ap-aaaaa": "ap-aaaaa", "q-aaaaaa": "q-aaaaaa", "ap-cccccc": "ap-cccccc", ids[1]: ids[1],
	} {
		if got, err := named(given, shortApproval, list, func(s string) string { return s }); err != nil || got != want {
			t.Errorf("%q stands for %q, %v; want %q", given, got, err, want)
		}
	}
	if got, err := named("ap-bbbbbb", shortApproval, list, func(s string) string { return s }); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("what two have stands for %q, %v", got, err)
	}
}
