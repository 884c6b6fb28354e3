package yamldoc

import (
	"maps"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// flatten writes every scalar of n under its path. Separators are control
// characters, which no document contains, so different paths never meet.
func flatten(n ast.Node) map[string]string {
	out := map[string]string{}
	if n != nil {
		flat(n, "", out)
	}
	return out
}

func flat(n ast.Node, path string, out map[string]string) {
	if pairs, ok := Pairs(n); ok {
		for _, kv := range pairs {
			flat(kv.Value, path+"\x00"+kv.Key.(*ast.StringNode).Value, out)
		}
		if len(pairs) == 0 {
			out[path] = "{}"
		}
		return
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for i, v := range n.Values {
			flat(v, path+"\x01"+strconv.Itoa(i), out)
		}
		if len(n.Values) == 0 {
			out[path] = "[]"
		}
	case *ast.LiteralNode:
		out[path] = "s" + n.Value.Value
	default:
		out[path] = n.Type().String() + n.GetToken().Value
	}
}

// sameBut reports whether both agree everywhere but at and below path, where the second
// has what value has below its one key. A parent that was empty and is not any more
// may go.
func sameBut(before, after map[string]string, path []string, value map[string]string) bool {
	at := "\x00" + strings.Join(path, "\x00")
	isBelow := func(key string) bool {
		return key == at || strings.HasPrefix(key, at+"\x00") || strings.HasPrefix(key, at+"\x01")
	}
	want := map[string]string{}
	for key, v := range value {
		want[at+strings.TrimPrefix(key, "\x00v")] = v
	}
	for key, v := range before {
		emptied := key == "" || strings.HasPrefix(at, key+"\x00") && (v == "{}" || v == "Nullnull" || v == "Null~")
		if !isBelow(key) && !emptied {
			want[key] = v
		}
	}
	return maps.Equal(want, after)
}
