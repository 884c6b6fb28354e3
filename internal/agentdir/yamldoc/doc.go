// Package yamldoc reads one YAML document whose top is a mapping and changes single
// values in place.
//
// It promises that [Parse] neither panics nor needs more than a bounded stack on
// any input, that every node it returns is a plain mapping, sequence or scalar
// (anchors, aliases, tags and merge keys are refused: a settings file needs none,
// and with them small files become large), and that [Doc.Set] leaves every byte
// outside the changed value alone: comments, blank lines, order, line ends.
//
// It does not know what the keys mean; that is package config.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// MaxSize is the largest document of [Parse] in bytes.
	MaxSize = 64 << 10
	// MaxHome is the largest document of settings of a home in bytes: it has up to 10,000
	// bindings.
	MaxHome = 1 << 20
	// maxDepth bounds how deep collections may nest.
	maxDepth = 32
)

// SyntaxError says where a document cannot be read. Line and Column count from 1,
// columns in characters; both are 0 when the complete document is meant.
type SyntaxError struct {
	Line, Column int
	Text         string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Doc is a parsed document. It is not changed after [Parse].
type Doc struct {
	data []byte
	root ast.Node // nil: nothing but comments
}

// Root returns the top mapping, or nil when the document holds nothing.
func (d *Doc) Root() ast.Node { return d.root }

// Parse reads data of at most [MaxSize] bytes. Its errors are [*SyntaxError].
func Parse(data []byte) (*Doc, error) { return ParseUpTo(data, MaxSize) }

// ParseUpTo is [Parse] with another bound of the size.
func ParseUpTo(data []byte, size int) (*Doc, error) {
	if err := guard(data, size, ""); err != nil {
		return nil, err
	}
	file, err := parse(data)
	if err != nil {
		return nil, err
	}
	var root ast.Node
	for i, doc := range file.Docs {
		if i > 0 {
			e := &SyntaxError{Text: "a second document starts here; only one is allowed"}
			if doc.Start != nil {
				e.Line, e.Column = doc.Start.Position.Line, doc.Start.Position.Column
			}
			return nil, e
		}
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			root = doc.Body
		}
	}
	if root == nil {
		return &Doc{data: data}, nil
	}
	if _, ok := Pairs(root); !ok {
		return nil, At(root, "the top of the file must be `key: value` lines")
	}
	if err := plain(root, 0); err != nil {
		return nil, err
	}
	return &Doc{data: data, root: root}, nil
}

// At returns a SyntaxError at the place of n.
func At(n ast.Node, text string) *SyntaxError {
	line, column := Position(n)
	return &SyntaxError{Line: line, Column: column, Text: text}
}

// Position returns where n starts, counted from 1; 0, 0 when that is not known.
func Position(n ast.Node) (line, column int) {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0]
	}
	if kv, ok := n.(*ast.MappingValueNode); ok {
		n = kv.Key
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0, 0
	}
	p := n.GetToken().Position
	return p.Line, p.Column
}

// Pairs returns the entries of a mapping; ok is false for any other node.
func Pairs(n ast.Node) (pairs []*ast.MappingValueNode, ok bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// guard refuses what the parser is not to see at all. spaces are the control characters that
// are white space in the format besides those of YAML.
func guard(data []byte, size int, spaces string) error {
	if len(data) > size {
		return &SyntaxError{Text: fmt.Sprintf("the file has %d bytes; at most %d are allowed", len(data), size)}
	}
	if !utf8.Valid(data) {
		return &SyntaxError{Text: "the file is not valid UTF-8"}
	}
	// The parser recurses once per level, so a run of openers is a stack bomb.
	depth, dashes := 0, 0
	line, column := 1, 0
	for _, r := range string(data) {
		column++
		switch r {
		case '\n':
			line, column, dashes = line+1, 0, 0
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?', ':':
			dashes++
		case ' ', '\t', '\r':
		default:
			dashes = 0
			if strings.ContainsRune(spaces, r) {
				continue
			}
			if r < ' ' || r == 0x7f || r == utf8.RuneError || r == '\uFEFF' {
				return &SyntaxError{Line: line, Column: column, Text: fmt.Sprintf("the character U+%04X is not allowed", r)}
			}
		}
		if depth > maxDepth || dashes > 4*maxDepth || column > 16<<10 {
			return &SyntaxError{Line: line, Column: column, Text: "the file is nested too deeply"}
		}
	}
	return nil
}

// parse calls the YAML parser and turns all it does, panics too, into an error.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &SyntaxError{Text: "the file cannot be read as YAML"}
		}
	}()
	file, err = parser.ParseBytes(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), 0)
	if err == nil {
		return file, nil
	}
	e := &SyntaxError{Text: "the file cannot be read as YAML"}
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		e.Text = explain(ye.GetMessage())
		if t := ye.GetToken(); t != nil && t.Position != nil {
			e.Line, e.Column = t.Position.Line, t.Position.Column
		}
	}
	return nil, e
}

// explanations are what messages of the parser mean to the author of a file: the beginning
// of each and the words for it.
var explanations = []struct{ message, text string }{
	{"sequence end token ']' not found", "a list is opened with [ and not closed"},
	{"',' or ']' must be specified", "a list in [ ] needs a comma or its end here"},
	{"could not find flow mapping end token '}'", "a group is opened with { and not closed"},
	{"',' or '}' must be specified", "a group in { } needs a comma or its end here"},
	{"could not find '", "a bracket is closed that was not opened"},
	{"could not find end character", "a quote is opened and not closed"},
	{"found character", "indent with spaces, and put text that begins with a special character in quotes"},
	{"mapping key ", "this key is already defined above"},
	{"value is not allowed in this context", "this line is not indented as those above it"},
	{"mapping value is not allowed in this context", "put text that contains a colon in quotes, or indent this line as those above it"},
	{"block sequence entries are not allowed", "an entry of a list begins on its own line"},
	{"expected map key-value delimiter", "a key needs a colon and a value"},
	{"unexpected key name", "a key needs a colon and a value"},
	{"non-map value is specified", "a key needs a colon and a value"},
}

// explain words a message of the parser for the author of the file.
func explain(message string) string {
	for _, e := range explanations {
		if strings.HasPrefix(message, e.message) {
			return e.text
		}
	}
	return "this is not valid YAML; check indentation, brackets and quotes"
}

// plain checks that n holds mappings with text keys, sequences and scalars only.
func plain(n ast.Node, depth int) error {
	if depth > maxDepth {
		return At(n, "the file is nested too deeply")
	}
	if pairs, ok := Pairs(n); ok {
		seen := make(map[string]bool, len(pairs))
		for _, kv := range pairs {
			key, ok := kv.Key.(*ast.StringNode)
			if !ok {
				return At(kv, "a key must be plain text")
			}
			if seen[key.Value] {
				return At(kv, fmt.Sprintf("the key %q is there twice", key.Value))
			}
			seen[key.Value] = true
			if err := plain(kv.Value, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, v := range n.Values {
			if err := plain(v, depth+1); err != nil {
				return err
			}
		}
		return nil
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode,
		*ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return nil
	case nil:
		return &SyntaxError{Text: "the file cannot be read as YAML"}
	}
	return At(n, "anchors, aliases, tags and merge keys are not allowed here")
}

// Items returns the entries of a sequence; ok is false for any other node.
func Items(n ast.Node) (items []ast.Node, ok bool) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	return s.Values, true
}
