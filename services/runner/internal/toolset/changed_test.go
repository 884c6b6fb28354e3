package toolset_test

import (
	"context"
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// S4-61: settings that change between the intent of a call and its run, while the runner is
// killed. What was refused is not made by its intent of class read; what was allowed and is not
// any more is not made either, except for a change of files that may have begun: it is
// finished, and its tool removes what it has staged.
func TestSettingsChangedSinceTheIntent(t *testing.T) {
	none := &registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Name: "agent", Deny: []string{"*"}}}}
	every := &registrypb.TurnConfig{ToolLayers: []*registrypb.ToolLayer{{Name: "agent"}}}
	for _, c := range []struct {
		name     string
		class    toolset.Class
		was, now *registrypb.TurnConfig
		begun    bool
		ran      bool
		result   string
	}{
		{"refused, allowed now", toolset.Effect, none, every, true, false, "was refused when it was made"},
		{"refused, allowed now", toolset.Idempotent, none, every, true, false, "was refused when it was made"},
		{"refused, allowed now", toolset.Read, none, every, true, true, "ran"},
		{"allowed, refused now", toolset.Effect, every, none, false, false, "is not available here"},
		{"allowed, refused now, may have begun", toolset.Effect, every, none, true, false, "outcome unknown"},
		{"allowed, refused now", toolset.Idempotent, every, none, false, false, "is not available here"},
		{"allowed, refused now, may have begun", toolset.Idempotent, every, none, true, true, "ran"},
		{"allowed", toolset.Effect, every, every, false, true, "ran"},
	} {
		ran, finished := false, false
		tool := scripted{
			name: "change", class: c.class, finished: func(int) { finished = true },
			run: func(context.Context, int, toolset.Call) toolset.Result {
				ran = true
				return toolset.Result{Text: "ran"}
			},
		}
		made := answer("change")
		calls, j := toolsettest.Calls(t, c.was, tool)
		if err := j.Write(t.Context(), nil, calls.Intents(key, made)...); err != nil {
			t.Fatal(err)
		}
		later, _ := toolsettest.Calls(t, c.now, tool)
		calls.Set = later.Set
		begun := ""
		if c.begun {
			begun = key(1)
		}
		results, err := calls.Use(t.Context(), key, made, begun)
		if err != nil || !strings.Contains(results[0], c.result) || ran != c.ran {
			t.Errorf("%s, class %d: ran %v, %s (%v)", c.name, c.class, ran, results, err)
		}
		if doubt := j.Tool(key(1)).GetState() == inDoubt; finished == doubt {
			t.Errorf("%s, class %d: finished %v, in doubt %v", c.name, c.class, finished, doubt)
		}
	}
}

// S3-44: a tool that bounds its text itself is read completely.
func TestBoundedText(t *testing.T) {
	long := strings.Repeat("x", toolset.MaxText+1)
	for _, bounded := range []bool{true, false} {
		made := answer("read")
		calls, _ := planned(t, made, scripted{name: "read", class: toolset.Read, run: func(context.Context, int, toolset.Call) toolset.Result {
			return toolset.Result{Text: long, Bounded: bounded}
		}})
		results, err := calls.Use(t.Context(), key, made, "")
		if err != nil || strings.Contains(results[0], long) != bounded {
			t.Errorf("bounded %v: %d bytes, %v", bounded, len(results[0]), err)
		}
	}
}
