package command

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// PrintJSON writes v with two blanks of indent, encoded as the external tools do
// it: no HTML escapes, U+2028 as itself. A nil slice must not reach it: it would
// be null instead of [].
func (e *Env) PrintJSON(v any) error {
	b, err := encode(v)
	if err == nil {
		_, err = e.Out.Write(b)
	}
	return err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return plainSeparators(b.Bytes()), nil
}

// plainSeparators undoes the escapes of U+2028 and U+2029, which encoding/json
// cannot be told to leave out. An escape begins at a backslash that is not
// itself escaped.
func plainSeparators(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\u202`)) {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		switch {
		case bytes.HasPrefix(b[i:], []byte(`\u2028`)):
			out, i = append(out, "\u2028"...), i+5
		case bytes.HasPrefix(b[i:], []byte(`\u2029`)):
			out, i = append(out, "\u2029"...), i+5
		default:
			out, i = append(out, b[i], b[i+1]), i+1
		}
	}
	return out
}
