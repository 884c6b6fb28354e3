package runner

import (
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S1-61: ends that are no answer can be told apart.
func TestCodes(t *testing.T) {
	dead := registrypb.Fate_FATE_DEAD
	for why, c := range map[string]struct {
		fate registrypb.Fate
		want runnerpb.RunError
	}{
		"aborted by the owner":                        {registrypb.Fate_FATE_ABORTED, runnerpb.RunError_RUN_ERROR_ABORTED},
		"timeout: the turn took longer than 1s":       {dead, runnerpb.RunError_RUN_ERROR_TIMEOUT},
		"rate limited: slow down (tried 3 times)":     {dead, runnerpb.RunError_RUN_ERROR_MODEL},
		"tool loop: the model called tools":           {dead, runnerpb.RunError_RUN_ERROR_TOOL_LOOP},
		"in doubt: the program was interrupted":       {dead, runnerpb.RunError_RUN_ERROR_IN_DOUBT},
		"panic: panic: x (tried 3 times)":             {dead, runnerpb.RunError_RUN_ERROR_PANIC},
		"the process died each time this message was": {dead, runnerpb.RunError_RUN_ERROR_CRASHED},
		"journal: refused":                            {dead, runnerpb.RunError_RUN_ERROR_OTHER},
	} {
		if got := endCode(&registrypb.Turn{Fate: c.fate, Error: why, ThreadId: "t"}); got != c.want {
			t.Errorf("%q is %v, want %v", why, got, c.want)
		}
	}
}
