package toolset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A schema that is being compiled holds up no call with another one.
func TestSchemaCompiles(t *testing.T) {
	begun, end, done := make(chan bool), make(chan bool), make(chan *schema)
	slow := &schema{}
	s := schemas{of: map[string]func() *schema{"slow": func() *schema { close(begun); <-end; return slow }}}
	go func() { done <- s.compiled(json.RawMessage("slow")) }()
	<-begun
	if problems, note := s.compiled(json.RawMessage(`{"required":["a"]}`)).check(map[string]any{}); len(problems) != 1 || note != "" {
		t.Error(problems, note)
	}
	close(end)
	if got := <-done; got != slow {
		t.Error("it is another schema")
	}
}

// A check of a schema that refers to itself in 2^60 ways ends with the visit that is one too many.
func TestVisits(t *testing.T) {
	var twice strings.Builder
	for n := range 60 {
		fmt.Fprintf(&twice, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, n, n+1, n+1)
	}
	c := compile(json.RawMessage(`{"$ref":"#/$defs/d0","$defs":{` + twice.String() + `"d60":{"type":"string"}}}`))
	if problems, note := c.check(map[string]any{}); len(problems) > 0 || note != errVisits.Error() || c.visits != maxVisits+1 {
		t.Errorf("%q, %q after %d visits", problems, note, c.visits)
	}
}

// A schema more than fit replaces one, and the others stay compiled.
func TestSchemasAreBounded(t *testing.T) {
	var s schemas
	text := func(n int) json.RawMessage { return fmt.Appendf(nil, `{"maxProperties":%d}`, n) }
	before := make([]*schema, maxSchemas+1)
	for n := range before {
		before[n] = s.compiled(text(n))
	}
	if len(s.of) != maxSchemas {
		t.Errorf("%d schemas", len(s.of))
	}
	if s.compiled(text(maxSchemas)) != before[maxSchemas] {
		t.Error("the newest one was compiled again")
	}
	again := 0
	for n := range before {
		if c, ok := s.of[string(text(n))]; !ok || c() != before[n] {
			again++
		}
	}
	if again != 1 {
		t.Errorf("%d are compiled again", again)
	}
}
