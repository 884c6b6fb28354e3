package mcp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// The limits of a tool.
const (
	maxName        = 256      // bytes of its name at the server
	maxDescription = 2 << 10  // bytes
	maxSchema      = 32 << 10 // bytes
	maxDepth       = 16       // of its schema
)

// description is a tool as its server describes it, in the one form in which it is compared, approved and
// offered.
type description struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"inputSchema"`
	Hints       hints           `json:"annotations"`
}

// hints are what a server says about the calls of a tool.
type hints struct {
	ReadOnly    bool  `json:"readOnlyHint"`
	Idempotent  bool  `json:"idempotentHint"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// describe returns the description of a tool. The error is why it cannot be offered.
func describe(t *sdk.Tool) (description, error) {
	if t.Name == "" || len(t.Name) > maxName || clean(t.Name) != t.Name || strings.ContainsFunc(t.Name, unicode.IsControl) {
		return description{}, fmt.Errorf("its name is empty, longer than %d bytes, or has control characters", maxName)
	}
	d := description{Name: t.Name, Description: strings.TrimSpace(clean(t.Description))}
	d.Description, _ = boundary.Text(d.Description, maxDescription)
	schema, err := cleanSchema(t.InputSchema, 0)
	if err != nil {
		return description{}, err
	}
	object, ok := schema.(map[string]any)
	if !ok {
		return description{}, errors.New("its schema is not an object")
	}
	if object["type"] == nil {
		object["type"] = "object"
	}
	if d.Schema = encode(object); len(d.Schema) > maxSchema {
		return description{}, fmt.Errorf("its schema has %d KiB, and %d are the most", len(d.Schema)>>10, maxSchema>>10)
	}
	if a := t.Annotations; a != nil {
		d.Hints = hints{a.ReadOnlyHint, a.IdempotentHint, a.DestructiveHint, a.OpenWorldHint}
	}
	return d, nil
}

// cleanSchema is a schema whose texts are clean. A reference to another document is refused: nothing is
// fetched for a schema.
func cleanSchema(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("its schema is nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case string:
		return clean(v), nil
	case []any:
		out := make([]any, len(v))
		for n, item := range v {
			var err error
			if out[n], err = cleanSchema(item, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if ref, ok := item.(string); ok && strings.HasSuffix(name, "$ref") && !strings.HasPrefix(ref, "#") {
				return nil, errors.New("its schema refers to another document")
			}
			var err error
			if out[clean(name)], err = cleanSchema(item, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// clean is a text of a server without what a person does not see: control characters except line breaks and
// tabs, and characters that change the direction of a text, have no width, or are tags.
func clean(s string) string {
	s, _ = boundary.Text(s, 0)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) ||
			r == '\u200B' || r == '\u2060' || r == '\uFEFF' || r >= 0xE0000 && r <= 0xE007F {
			return -1
		}
		return r
	}, s)
}

// encode is a value as JSON in one form: the members of objects sorted, without the escapes for HTML.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // decoded values and our structs always encode
		return json.RawMessage("{}")
	}
	return bytes.TrimSpace(b.Bytes())
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// class returns the class of the calls of a tool: as the owner has set it, else as its hints say, which are approved
// with it.
func (d description) class(s *registrypb.McpServer) toolset.Class {
	for _, c := range []toolset.Class{toolset.Read, toolset.Idempotent, toolset.Effect} {
		if s.GetClasses()[d.Name] == c.String() {
			return c
		}
	}
	switch {
	case d.Hints.ReadOnly:
		return toolset.Read
	case d.Hints.Idempotent:
		return toolset.Idempotent
	}
	return toolset.Effect
}

const (
	maxOffered = 64 // characters of a name that models accept
	keptName   = 55 // of a longer one, before a hash
)

// offeredNames are the names under which the tools of a server are offered, by their names at the server.
// Tools whose names would be equal are distinguished by a hash, except for the first by name. Servers cannot
// collide, because the name of one has no underscore.
func offeredNames(server string, tools []string) map[string]string {
	tools = slices.Sorted(slices.Values(tools))
	out, taken := map[string]string{}, map[string]bool{}
	for _, tool := range tools {
		complete := server + "__" + tool
		name := strings.Map(func(r rune) rune {
			if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
				return r
			}
			return '_'
		}, complete)
		if len(name) > maxOffered || taken[name] {
			short, hash := name[:min(len(name), keptName)], sum([]byte(complete))
			for name = short + "_" + hash[:8]; taken[name]; name = short + "_" + hash[:8] { // another tool has the hash in its name
				hash = sum([]byte(hash))
			}
		}
		out[tool], taken[name] = name, true
	}
	return out
}
