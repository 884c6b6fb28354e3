package yamldoc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// ErrInPlace says that the document is written in a way that cannot be changed in place
// without touching other bytes (a value over many lines, for instance).
var ErrInPlace = errors.New("the value cannot be changed in place")

// Set returns the document with the value at path replaced by flow, a one-line YAML
// value that the caller has quoted as needed. Missing parents are made. The result is
// read again and compared with the original: unless exactly this path changed, the
// answer is [ErrInPlace] and nothing is lost.
func (d *Doc) Set(path []string, flow string) ([]byte, error) {
	if len(path) == 0 || flow == "" || strings.ContainsAny(flow, "\r\n") {
		return nil, fmt.Errorf("set value: %w", ErrInPlace)
	}
	want, err := Parse([]byte("v: " + flow + "\n"))
	if err != nil || flatten(want.root)["\x00v"] == "Nullnull" {
		return nil, fmt.Errorf("set %s: %w", strings.Join(path, "."), ErrInPlace)
	}
	e := newEditor(d.data)
	if !e.set(d.root, path, flow) {
		return nil, fmt.Errorf("set %s: %w", strings.Join(path, "."), ErrInPlace)
	}
	out := e.bytes()
	after, err := ParseUpTo(out, MaxHome)
	if err != nil || !sameBut(flatten(d.root), flatten(after.root), path, flatten(want.root)) {
		return nil, fmt.Errorf("set %s: %w", strings.Join(path, "."), ErrInPlace)
	}
	return out, nil
}

// Has reports whether the document has a key.
func (d *Doc) Has(path []string) bool {
	_, found := find(d.root, path)
	return found
}

// find returns the entries from the top down to a key, as far as they are there.
func find(n ast.Node, path []string) (way []*ast.MappingValueNode, found bool) {
	for _, name := range path {
		pairs, _ := Pairs(n)
		i := slices.IndexFunc(pairs, func(kv *ast.MappingValueNode) bool { return kv.Key.(*ast.StringNode).Value == name })
		if i < 0 {
			return way, false
		}
		way, n = append(way, pairs[i]), pairs[i].Value
	}
	return way, len(way) > 0
}

// Remove returns the document without a key that it has, and without the groups that held nothing else. Comments
// inside of them go with it. The result is read again and compared with the original as by [Doc.Set].
func (d *Doc) Remove(path []string) ([]byte, error) {
	refuse := fmt.Errorf("remove %s: %w", strings.Join(path, "."), ErrInPlace)
	way, found := find(d.root, path)
	if !found {
		return nil, refuse
	}
	at := len(way) - 1
	for at > 0 {
		if siblings, _ := Pairs(way[at-1].Value); len(siblings) > 1 {
			break
		}
		at--
	}
	parent := d.root
	if at > 0 {
		parent = way[at-1].Value
	}
	if m, ok := parent.(*ast.MappingNode); ok && m.IsFlowStyle {
		return nil, refuse
	}
	e := newEditor(d.data)
	if !e.remove(way[at]) {
		return nil, refuse
	}
	out := e.bytes()
	after, err := ParseUpTo(out, MaxHome)
	if err != nil || !sameBut(flatten(d.root), flatten(after.root), path[:at+1], nil) {
		return nil, refuse
	}
	return out, nil
}

// SetBlock returns the document with the value of a key at the top replaced by lines, which
// the caller has written as YAML with an indent; no lines remove the key. Comments inside the
// old value go with it. The result is read again and compared with the original as by
// [Doc.Set].
func (d *Doc) SetBlock(key string, lines []string) ([]byte, error) {
	refuse := fmt.Errorf("set %s: %w", key, ErrInPlace)
	e := newEditor(d.data)
	if !e.setBlock(d.root, key, lines) {
		return nil, refuse
	}
	out := e.bytes()
	after, err := ParseUpTo(out, MaxHome)
	if err != nil {
		return nil, refuse
	}
	text := strings.Join(append([]string{"v:"}, lines...), "\n") + "\n"
	want, err := ParseUpTo([]byte(text), MaxHome+len("v:\n"))
	if err != nil {
		return nil, refuse
	}
	values := flatten(want.root)
	if len(lines) == 0 {
		values = nil
	}
	if !sameBut(flatten(d.root), flatten(after.root), []string{key}, values) {
		return nil, refuse
	}
	return out, nil
}
