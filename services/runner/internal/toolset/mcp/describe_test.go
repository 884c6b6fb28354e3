package mcp

import (
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// S3-61: the names of tools are those that models accept, and no two are equal.
func TestOfferedNames(t *testing.T) {
	long := strings.Repeat("n", 80)
	got := offeredNames("git-hub", []string{"b", "a.b", "a_b", "a b", "ünïcode", long, long + "x", "Upper-Case"})
	for tool, want := range map[string]string{
		"b": "git-hub__b", "a b": "git-hub__a_b", "a.b": "git-hub__a_b_" + sum([]byte("git-hub__a.b"))[:8], "a_b": "git-hub__a_b_" + sum([]byte("git-hub__a_b"))[:8],
		"ünïcode": "git-hub___n_code", "Upper-Case": "git-hub__Upper-Case",
		long: ("git-hub__" + long)[:55] + "_" + sum([]byte("git-hub__" + long))[:8], long + "x": ("git-hub__" + long)[:55] + "_" + sum([]byte("git-hub__" + long + "x"))[:8],
	} {
		if got[tool] != want {
			t.Errorf("%q is offered as %q, want %q", tool, got[tool], want)
		}
	}
	seen := map[string]bool{}
	for tool, name := range got {
		if seen[name] || len(name) > maxOffered {
			t.Errorf("%q: %q", tool, name)
		}
		seen[name] = true
	}
}

// S3-61: a server that gives a tool the name that another one of it has with its hash gets other names for them, and no two
// equal ones, with which no turn of the agent would have tools.
func TestOfferedNamesForged(t *testing.T) {
	long := strings.Repeat("n", 80)
	forged := strings.TrimPrefix(offeredNames("web", []string{long})[long], "web__")
	got := offeredNames("web", []string{long, forged})
	if got[long] == got[forged] || len(got[long]) != maxOffered {
		t.Errorf("%q and %q", got[long], got[forged])
	}
}

// The same tool has the same description, whatever the order of its members; each hint and each word
// counts, and nothing of what a person does not see is left.
func TestDescribe(t *testing.T) {
	tool := func(change func(*sdk.Tool)) *sdk.Tool {
		out := &sdk.Tool{Name: "t", Description: "does it", InputSchema: map[string]any{"type": "object", "properties": map[string]any{"b": map[string]any{"type": "string"}, "a": map[string]any{"enum": []any{"<x>", 1.0}}}}}
		change(out)
		return out
	}
	first, err := describe(tool(func(*sdk.Tool) {}))
	if err != nil || string(encode(first)) != `{"name":"t","description":"does it","inputSchema":{"properties":{"a":{"enum":["<x>",1]},"b":{"type":"string"}},"type":"object"},"annotations":{"readOnlyHint":false,"idempotentHint":false}}` {
		t.Fatalf("%s, %v", encode(first), err)
	}
	for name, change := range map[string]func(*sdk.Tool){
		"description": func(s *sdk.Tool) { s.Description += "!" },
		"schema":      func(s *sdk.Tool) { s.InputSchema.(map[string]any)["required"] = []any{"a"} },
		"hint":        func(s *sdk.Tool) { s.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true} },
	} {
		if d, err := describe(tool(change)); err != nil || string(encode(d)) == string(encode(first)) {
			t.Errorf("%s: %s, %v", name, encode(d), err)
		}
	}
	hidden, err := describe(tool(func(s *sdk.Tool) { s.Description = "do\u202ees\x1b[1m i\u200bt\U000E0041" }))
	if err != nil || hidden.Description != "does[1m it" {
		t.Errorf("%q, %v", hidden.Description, err)
	}
	for name, change := range map[string]func(*sdk.Tool){
		"no name":      func(s *sdk.Tool) { s.Name = "" },
		"control":      func(s *sdk.Tool) { s.Name = "a\x00b" },
		"no object":    func(s *sdk.Tool) { s.InputSchema = []any{} },
		"other schema": func(s *sdk.Tool) { s.InputSchema = map[string]any{"$ref": "file:///etc/passwd"} },
	} {
		if d, err := describe(tool(change)); err == nil {
			t.Errorf("%s: %s", name, encode(d))
		}
	}
}

// The owner's classes count more than the hints, and without either a call may have any effect.
func TestClass(t *testing.T) {
	cfg := &registrypb.McpServer{Classes: map[string]string{"set": "effect", "strange": "other"}}
	for want, d := range map[toolset.Class]description{
		toolset.Effect: {Name: "set", Hints: hints{ReadOnly: true}}, toolset.Read: {Name: "strange", Hints: hints{ReadOnly: true, Idempotent: true}},
		toolset.Idempotent: {Name: "x", Hints: hints{Idempotent: true}},
	} {
		if got := d.class(cfg); got != want {
			t.Errorf("%s: class %d, want %d", d.Name, got, want)
		}
	}
	if (description{Name: "x"}).class(cfg) != toolset.Effect {
		t.Error("without hints it is no effect")
	}
}

// What a process prints is read to its end; one that prints more than is read is ended.
func TestStream(t *testing.T) {
	floods := 0
	s := newStream(func() { floods++ })
	s.add([]byte("one "))
	s.add([]byte("two"))
	_ = s.Close()
	s.add([]byte("too late"))
	if b, err := io.ReadAll(s); string(b) != "one two" || err != nil || floods != 0 {
		t.Errorf("%q, %v", b, err)
	}
	s = newStream(func() { floods++ })
	for range 20 {
		s.add(make([]byte, 1<<20))
	}
	if _, err := io.ReadAll(s); err == nil || floods != 1 {
		t.Errorf("flooded %d times, %v", floods, err)
	}
	var end tail
	end.add([]byte(strings.Repeat("x", 3000)))
	end.add([]byte("\x1b[31mlast\xff"))
	if got := end.text(); len(got) > maxErrors+3 || !strings.HasSuffix(got, "last\uFFFD") {
		t.Errorf("%d bytes, %q", len(got), got[max(0, len(got)-20):])
	}
}
