package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/titanous/json5"
)

// ParseJSON5 reads a JSON5 document of at most [MaxHome] bytes into the tree that [Parse]
// makes of the same settings in YAML, in the order of the document. Its nodes have no
// positions, and of two equal keys in one object the last one counts: the library reports
// neither. Such a Doc cannot be changed. Its errors are [*SyntaxError].
func ParseJSON5(data []byte) (*Doc, error) {
	if err := guard(data, MaxHome, "\v\f"); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return &Doc{data: data}, nil
	}
	root, err := json5Node(data, 0)
	if err != nil {
		return nil, err
	}
	if _, ok := Pairs(root); !ok {
		return nil, &SyntaxError{Text: "the top of the file must be an object: { key: value }"}
	}
	return &Doc{data: data, root: root}, nil
}

// json5Value is a member of an object or a list as it is written. The decoder fills a map,
// which has no order; the number restores that of the document, in which it decodes.
type json5Value struct {
	raw   []byte
	order uint64
}

var json5Order atomic.Uint64

// UnmarshalJSON keeps the text.
func (v *json5Value) UnmarshalJSON(raw []byte) error {
	v.raw, v.order = bytes.Clone(raw), json5Order.Add(1)
	return nil
}

// json5Node turns one value into a node. Each level is decoded alone, so that the depth is
// bounded here and not by the stack of the library.
func json5Node(raw []byte, depth int) (ast.Node, error) {
	if depth > maxDepth {
		return nil, &SyntaxError{Text: "the file is nested too deeply"}
	}
	var value json5Value
	if err := decodeJSON5(raw, &value); err != nil {
		return nil, err
	}
	text := json5Start(value.raw)
	if text == "" { // the decoder reports null without its text
		text = "null"
	}
	switch text[0] {
	case '{':
		members := map[string]json5Value{}
		if err := decodeJSON5(raw, &members); err != nil {
			return nil, err
		}
		node := ast.Mapping(token.MappingStart("{", nil), true)
		for _, key := range slices.SortedFunc(maps.Keys(members), func(a, b string) int {
			return int(members[a].order) - int(members[b].order)
		}) {
			member, err := json5Node(orNull(members[key].raw), depth+1)
			if err != nil {
				return nil, err
			}
			node.Values = append(node.Values, ast.MappingValue(token.MappingValue(nil), ast.String(token.String(key, key, nil)), member))
		}
		return node, nil
	case '[':
		var items []json5Value
		if err := decodeJSON5(raw, &items); err != nil {
			return nil, err
		}
		node := ast.Sequence(token.SequenceStart("[", nil), true)
		for _, item := range items {
			n, err := json5Node(orNull(item.raw), depth+1)
			if err != nil {
				return nil, err
			}
			node.Values = append(node.Values, n)
		}
		return node, nil
	case '"', '\'':
		var s string
		if err := decodeJSON5(raw, &s); err != nil {
			return nil, err
		}
		return ast.String(token.String(s, s, nil)), nil
	case 't', 'f':
		word := "true"
		if text[0] == 'f' {
			word = "false"
		}
		return ast.Bool(token.New(word, word, nil)), nil
	case 'n':
		return ast.Null(token.New("null", "null", nil)), nil
	}
	number := text
	if i := strings.IndexAny(text, " \t\r\n\v\f/"); i >= 0 {
		number = text[:i]
	}
	if strings.ContainsAny(number, ".eE") && !strings.ContainsAny(number, "xX") || strings.ContainsAny(number, "IN") {
		return ast.Float(token.New(number, number, nil)), nil
	}
	return ast.Integer(token.New(number, number, nil)), nil
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

// json5Start returns the text of a value without white space and comments before it.
func json5Start(raw []byte) string {
	text := string(raw)
	for {
		text = strings.TrimLeft(text, " \t\r\n\v\f\u00a0\ufeff\u2028\u2029")
		switch {
		case strings.HasPrefix(text, "//"):
			_, text, _ = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text, "*/")
		default:
			return text
		}
	}
}

// decodeJSON5 calls the library and turns all it does, panics too, into an error.
func decodeJSON5(raw []byte, to any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &SyntaxError{Text: "the file cannot be read as JSON5"}
		}
	}()
	err = json5.Unmarshal(raw, to)
	if err == nil {
		return nil
	}
	e := &SyntaxError{Text: "this is not valid JSON5"}
	if se, ok := errors.AsType[*json5.SyntaxError](err); ok {
		// Offset counts the bytes that were read, the wrong one included.
		at := raw[:min(max(se.Offset-1, 0), int64(len(raw)))]
		e.Line = bytes.Count(at, []byte("\n")) + 1
		e.Column = utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:]) + 1
		e.Text = fmt.Sprintf("this is not valid JSON5: %s", strings.ReplaceAll(se.Error(), "JSON input", "the file"))
	}
	return e
}
