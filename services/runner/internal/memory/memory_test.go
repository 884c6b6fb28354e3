package memory

import (
	"strings"
	"testing"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// named is a tool that is only looked up.
type named struct{ toolset.Tool }

func (named) Spec() toolset.Spec {
	return toolset.Spec{Name: "bash_exec", Description: "x", Schema: []byte(`{}`)}
}

// I14: the agent's own layer counts what was done; whatever a peer or a model
// wrote into a record, even as the name of a tool, stays out.
func TestTallyHoldsNoWords(t *testing.T) {
	record := func(id int64, subtype, content string) *registrypb.Event {
		return &registrypb.Event{Id: id, Type: "record", Subtype: &subtype, Content: content}
	}
	tools, err := toolset.New(named{})
	if err != nil {
		t.Fatal(err)
	}
	text, last := Registry{Tools: tools}.tally([]*registrypb.Event{
		record(3, "toolcall", `{"name":"bash_exec","arguments":{"command":"echo canary"},"result":{"stdout":"canary","exitCode":0}}`),
		record(4, "toolcall", `{"name":"bash_exec","arguments":{"command":"false canary"},"result":{"exitCode":1}}`),
		record(5, "toolcall", `{"name":"canary","arguments":"canary","result":"canary"}`),
		record(6, "error", `{"error":"canary","context":"message from canary"}`),
		record(7, "decision", `{"decision":"canary"}`),
		record(8, "canary", `canary`),
	})
	if strings.Contains(text, "canary") || last != 8 {
		t.Errorf("up to %d: %q", last, text)
	}
	for _, want := range []string{"2 calls of bash_exec, 1 of them failed", "1 calls of an unknown tool, 1 of them failed", "1 messages could not be answered"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

// I14: a peer's own thread is known by who speaks, not by its name alone.
func TestOwnThread(t *testing.T) {
	for _, c := range []struct {
		source, thread string
		own            bool
	}{
		{"external:telegram:main:dm:bob:bob", "threads/peers/main-bob", true},
		{"external:telegram:main:dm:bob:bob", "threads/peers/main-alice", false},
		{"external:telegram:main:dm:bob:bob", "threads/channels/main", false},
		{"external:telegram:main:dm:bob:bob", "threads/main", false},
		{"nobody", "threads/peers/main-bob", false},
	} {
		if got := ownThread(Job{Source: c.source, Content: `{"text":"x"}`, ThreadID: c.thread}); got != c.own {
			t.Errorf("%s in %s: %v", c.source, c.thread, got)
		}
	}
}
