package pai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// heard is what one answer told while pieces of n bytes of both streams came in.
func heard(t *testing.T, n int, stdout, stderr []byte, barred func()) (*answer, string, []model.ToolUse) {
	t.Helper()
	var text strings.Builder
	var tools []model.ToolUse
	a := &answer{messages: 1, barred: barred, onDelta: func(d model.Delta) {
		text.WriteString(d.Text)
		if d.Tool != nil {
			tools = append(tools, *d.Tool)
		}
	}}
	for _, s := range []struct {
		err bool
		b   []byte
	}{{true, stderr}, {false, stdout}} {
		for rest := s.b; len(rest) > 0; {
			k := min(n, len(rest))
			a.take(piece{s.err, append([]byte(nil), rest[:k]...)})
			rest = rest[k:]
		}
	}
	a.flush()
	if a.text.String() != text.String() || !utf8.ValidString(text.String()) {
		t.Errorf("told %q, kept %q", text.String(), a.text.String())
	}
	return a, text.String(), tools
}

// marks makes a row of marks for bad bytes one: how many there are depends on where
// a piece ended.
func marks(s string) string {
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

// S10: whatever pai prints, however it is cut: the text is what stdout says, tools
// are told in pairs that can be stored, and a program that must not have tools is
// ended before any is told.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("hello"), []byte(`{"type":"start","data":{"tools":0}}`+"\n"+`{"type":"complete","data":{"finishReason":"stop"}}`+"\n"), 3)
	f.Add([]byte("a\xffb\xe2\x82"), []byte(`{"type":"tool_call","data":{"name":"bash_exec","arguments":{"command":"ls"}}}`+"\n"+`{"type":"tool_result","data":{"x":1}}`+"\n"), 1)
	f.Add([]byte("日本"), []byte("[Info] x\nError: y\n{\"type\":\"error\",\"message\":\"z\"}\r\n{\"type\":\"tool_result\"}\n{"), 2)
	f.Add([]byte(nil), []byte(`{"type":"tool_call","data":{"name":"a","arguments":[1]}}`+"\n"+`{"type":"tool_call","data":{"name":"b"}}`+"\n"+`{"type":"tool_result","data":null}`), 7)
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, n int) {
		whole, text, tools := heard(t, 1<<20, stdout, stderr, nil)
		cut, pieces, same := heard(t, max(1, min(n, 64)), stdout, stderr, nil)
		if want := marks(strings.ToValidUTF8(string(stdout), "\uFFFD")); marks(text) != want || marks(pieces) != want {
			t.Errorf("stdout %q is told as %q, and in pieces as %q", stdout, text, pieces)
		}
		state := func(a *answer) string {
			return fmt.Sprint(a.rounds, a.complete, a.finish, a.calls, a.failed, a.failure, a.last, a.open != nil)
		}
		if state(whole) != state(cut) || fmt.Sprint(tools) != fmt.Sprint(same) {
			t.Errorf("in pieces %s %v, at once %s %v", state(cut), same, state(whole), tools)
		}
		open, ids := "", map[string]bool{}
		for _, u := range tools {
			switch {
			case u.Call.Name == "" || !json.Valid(u.Call.Arguments):
				t.Errorf("a bad call: %+v", u)
			case u.Result == nil && ids[u.Call.ID]:
				t.Errorf("%s begins twice", u.Call.ID)
			case u.Result == nil:
				open, ids[u.Call.ID] = u.Call.ID, true
			case u.Call.ID != open || !json.Valid(u.Result):
				t.Errorf("the end of %s after the start of %s: %s", u.Call.ID, open, u.Result)
			default:
				open = ""
			}
		}
		ended := 0
		barred, _, told := heard(t, 1<<20, stdout, stderr, func() { ended++ })
		if len(told) > 0 || whole.calls > 0 && ended == 0 || barred.offered != (ended > 0) {
			t.Errorf("without tools: told %v, ended %d times", told, ended)
		}
	})
}
