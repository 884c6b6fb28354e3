package yamldoc

import (
	"bytes"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// editor works on lines without their ends, so that positions of the parser fit.
type editor struct {
	lines []string
	end   string // line end of the file
	final bool   // the last line has an end
}

func newEditor(data []byte) *editor {
	e := &editor{end: "\n", final: true}
	if bytes.Contains(data, []byte("\r\n")) {
		e.end = "\r\n"
	}
	if len(data) == 0 {
		return e
	}
	text := string(data)
	e.final = strings.HasSuffix(text, "\n")
	e.lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return e
}

func (e *editor) bytes() []byte {
	text := strings.Join(e.lines, "\n")
	if e.final && len(e.lines) > 0 {
		text += "\n"
	}
	return []byte(text)
}

// set goes down as far as the mappings exist and then replaces or inserts.
func (e *editor) set(n ast.Node, path []string, flow string) bool {
	if n == nil {
		return e.insert(len(e.lines), 0, path, flow)
	}
	pairs, _ := Pairs(n)
	for _, kv := range pairs {
		if kv.Key.(*ast.StringNode).Value != path[0] {
			continue
		}
		if len(path) == 1 {
			return e.replace(kv, flow)
		}
		if children, ok := Pairs(kv.Value); ok && len(children) > 0 {
			return e.set(kv.Value, path[1:], flow)
		}
		switch v := kv.Value.(type) {
		case *ast.NullNode: // `retry:` with nothing below it yet
			line, column := Position(kv)
			if e.afterKey(kv) == "" {
				return e.insert(line, column+1, path[1:], flow)
			}
			return e.replace(kv, nested(path[1:], flow))
		case *ast.MappingNode: // `{}`
			return e.into(v, path[1:], flow)
		}
		return false
	}
	if m, ok := n.(*ast.MappingNode); ok && m.IsFlowStyle {
		return e.into(m, path, flow)
	}
	_, column := Position(n)
	return e.insert(lastLine(n), column-1, path, flow)
}

// insert adds `a:`, `  b: flow` lines after line number at.
func (e *editor) insert(at, indent int, path []string, flow string) bool {
	if at > len(e.lines) || indent < 0 {
		return false
	}
	// Deeper lines still belong to the value before: a text over many lines, or the
	// comments under it.
	for j := at; j < len(e.lines); j++ {
		text := strings.TrimRight(e.lines[j], " \t\r")
		if depth := len(text) - len(strings.TrimLeft(text, " ")); text != "" && depth <= indent {
			break
		} else if text != "" {
			at = j + 1
		}
	}
	var add []string
	for i, key := range path {
		line := strings.Repeat(" ", indent+2*i) + key + ":"
		if i == len(path)-1 {
			line += " " + flow
		}
		if e.end == "\r\n" {
			line += "\r"
		}
		add = append(add, line)
	}
	if at == len(e.lines) && !e.final {
		// The new last line takes over having no end, the old one gets one.
		if e.end == "\r\n" {
			e.lines[at-1] += "\r"
			add[len(add)-1] = strings.TrimSuffix(add[len(add)-1], "\r")
		}
	}
	e.lines = append(e.lines[:at:at], append(add, e.lines[at:]...)...)
	return true
}

// into adds an entry before the closing brace of a flow mapping.
func (e *editor) into(m *ast.MappingNode, path []string, flow string) bool {
	if m.End == nil {
		return false
	}
	head, tail, ok := e.cut(m.End.Position.Line, m.End.Position.Column)
	if !ok || !strings.HasPrefix(tail, "}") {
		return false
	}
	entry := path[0] + ": " + nested(path[1:], flow)
	head = strings.TrimRight(head, " ")
	if len(m.Values) > 0 && !strings.HasSuffix(head, ",") {
		head += ","
	}
	if len(m.Values) > 0 {
		entry = " " + entry
	}
	e.lines[m.End.Position.Line-1] = head + entry + tail
	return true
}

// nested writes the rest of a path and its value as one flow value.
func nested(path []string, flow string) string {
	for i := len(path) - 1; i >= 0; i-- {
		flow = "{" + path[i] + ": " + flow + "}"
	}
	return flow
}

// cut splits a line at a column that counts characters from 1.
func (e *editor) cut(line, column int) (head, tail string, ok bool) {
	if line < 1 || line > len(e.lines) || column < 1 {
		return "", "", false
	}
	text := []rune(e.lines[line-1])
	if column-1 > len(text) {
		return "", "", false
	}
	return string(text[:column-1]), string(text[column-1:]), true
}

// afterKey returns what stands behind `key:` on its line, without a comment.
func (e *editor) afterKey(kv *ast.MappingValueNode) string {
	p := kv.GetToken().Position // the colon
	_, tail, ok := e.cut(p.Line, p.Column)
	if !ok {
		return ""
	}
	tail = strings.TrimPrefix(tail, ":")
	if i := strings.Index(tail, " #"); i >= 0 {
		tail = tail[:i]
	}
	return strings.TrimSpace(tail)
}

// replace exchanges the value of kv.
func (e *editor) replace(kv *ast.MappingValueNode, flow string) bool {
	colon := kv.GetToken().Position
	head, tail, ok := e.cut(colon.Line, colon.Column)
	if !ok || !strings.HasPrefix(tail, ":") {
		return false
	}
	if _, null := kv.Value.(*ast.NullNode); null && e.afterKey(kv) == "" {
		e.lines[colon.Line-1] = head + ": " + flow + tail[1:]
		return true
	}
	switch v := kv.Value.(type) {
	case *ast.SequenceNode:
		if v.IsFlowStyle {
			return v.End != nil && e.span(place{v.Start.Position.Line, v.Start.Position.Column}, place{v.End.Position.Line, v.End.Position.Column}, "]", flow)
		}
		return e.block(kv, head, tail, flow)
	case *ast.MappingNode:
		if v.IsFlowStyle {
			return v.End != nil && e.span(place{v.Start.Position.Line, v.Start.Position.Column}, place{v.End.Position.Line, v.End.Position.Column}, "}", flow)
		}
		return e.block(kv, head, tail, flow)
	case *ast.MappingValueNode:
		return e.block(kv, head, tail, flow)
	}
	return e.scalar(kv.Value, flow)
}

// scalar exchanges a value that stands on one line.
func (e *editor) scalar(n ast.Node, flow string) bool {
	line, column := Position(n)
	head, tail, ok := e.cut(line, column)
	if !ok || tail == "" {
		return false
	}
	size := 0
	switch tail[0] {
	case '\'', '"':
		size = quoted(tail)
	default:
		if value := n.GetToken().Value; value != "" && strings.HasPrefix(tail, value) {
			size = len(value)
		}
	}
	if size == 0 {
		return false
	}
	e.lines[line-1] = head + flow + tail[size:]
	return true
}

// quoted returns the length of the quoted text at the start of s, 0 if it goes on.
func quoted(s string) int {
	q := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && q == '"':
			i++
		case s[i] == q && q == '\'' && i+1 < len(s) && s[i+1] == q:
			i++
		case s[i] == q:
			return i + 1
		}
	}
	return 0
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// span exchanges everything from one position to the closing bracket at another.
func (e *editor) span(from, to place, closing, flow string) bool {
	head, _, ok1 := e.cut(from.line, from.column)
	_, tail, ok2 := e.cut(to.line, to.column)
	if !ok1 || !ok2 || !strings.HasPrefix(tail, closing) || to.line < from.line {
		return false
	}
	line := head + flow + tail[1:]
	e.lines = append(e.lines[:from.line-1:from.line-1], append([]string{line}, e.lines[to.line:]...)...)
	return true
}

// block exchanges the lines below a key.
func (e *editor) block(kv *ast.MappingValueNode, head, tail, flow string) bool {
	first, last := kv.GetToken().Position.Line, lastLine(kv.Value)
	if start, _ := Position(kv.Value); start <= first || last < start || last > len(e.lines) {
		return false
	}
	e.lines[first-1] = head + ": " + flow + tail[1:]
	e.lines = append(e.lines[:first:first], e.lines[last:]...)
	return true
}

// remove takes out the lines of a key, those that are indented deeper included.
func (e *editor) remove(kv *ast.MappingValueNode) bool {
	first, column := Position(kv)
	last := max(first, lastLine(kv.Value))
	if first < 1 || last > len(e.lines) || strings.TrimSpace(e.lines[first-1][:min(column-1, len(e.lines[first-1]))]) != "" {
		return false
	}
	for j := last; j < len(e.lines); j++ {
		text := strings.TrimRight(e.lines[j], " \t\r")
		if depth := len(text) - len(strings.TrimLeft(text, " ")); text != "" && depth < column {
			break
		} else if text != "" {
			last = j + 1
		}
	}
	e.final = e.final || last == len(e.lines)
	e.lines = append(e.lines[:first-1:first-1], e.lines[last:]...)
	return true
}

// setBlock exchanges the lines of a key at the top, or adds them at the end.
func (e *editor) setBlock(n ast.Node, key string, lines []string) bool {
	if m, ok := n.(*ast.MappingNode); ok && m.IsFlowStyle {
		return false
	}
	var add []string
	if len(lines) > 0 {
		add = append([]string{key + ":"}, lines...)
	}
	if e.end == "\r\n" {
		for i := range add {
			add[i] += "\r"
		}
	}
	pairs, _ := Pairs(n)
	for _, kv := range pairs {
		if kv.Key.(*ast.StringNode).Value != key {
			continue
		}
		first, column := Position(kv)
		last := max(first, lastLine(kv.Value))
		if column != 1 || last > len(e.lines) {
			return false
		}
		e.lines = append(e.lines[:first-1:first-1], append(add, e.lines[last:]...)...)
		e.final = e.final || last == len(e.lines)
		return true
	}
	if !e.final && e.end == "\r\n" {
		e.lines[len(e.lines)-1] += "\r"
	}
	e.lines, e.final = append(e.lines, add...), true
	return true
}

// lastLine returns the last line on which n has a token.
func lastLine(n ast.Node) int {
	last := 0
	switch v := n.(type) {
	case *ast.MappingNode:
		if v.End != nil && v.IsFlowStyle {
			last = v.End.Position.Line
		}
	case *ast.SequenceNode:
		if v.End != nil && v.IsFlowStyle {
			last = v.End.Position.Line
		}
		for _, item := range v.Values {
			last = max(last, lastLine(item))
		}
	case *ast.NullNode:
		return 0 // an implicit null has the place of the next token
	default:
		last, _ = Position(n)
	}
	if pairs, ok := Pairs(n); ok {
		for _, kv := range pairs {
			last = max(last, kv.GetToken().Position.Line, lastLine(kv.Value))
		}
	}
	return last
}
