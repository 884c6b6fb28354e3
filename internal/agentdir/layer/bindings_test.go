package layer

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/theclaw/agents/internal/binding"
)

// S4-10: the list is replaced, and every comment elsewhere stays.
func TestSetBindings(t *testing.T) {
	list := []binding.Binding{
		{Agent: "work", Match: binding.Match{Channel: "discord", Account: "*", Guild: "81"}},
		{Agent: "main", Match: binding.Match{Channel: "telegram", Peer: binding.Peer{Kind: "dm", ID: "-7: #x'"}}},
	}
	const lines = "bindings:\n  - {agent_id: work, match: {channel: discord, account_id: '*', guild_id: '81'}}\n  - {agent_id: main, match: {channel: telegram, peer: {kind: dm, id: '-7: #x'''}}}\n"
	for in, want := range map[string]string{
		"":                           lines,
		"# c\nowners: ['a:b'] # d\n": "# c\nowners: ['a:b'] # d\n" + lines,
		"owners: ['a:b']":            "owners: ['a:b']\n" + lines,
		"# a\nbindings: [] # gone\n# b\nrun: {timeout: 5m}\n":                                          "# a\n" + lines + "# b\nrun: {timeout: 5m}\n",
		"bindings:\n- agent_id: x\n  match:\n    channel: slack\n# b\nrun: {timeout: 5m} # r\n":        lines + "# b\nrun: {timeout: 5m} # r\n",
		"run: {timeout: 5m}\nbindings:\n  # gone\n  - {agent_id: x, match: {channel: slack}}\n\n# end": "run: {timeout: 5m}\n" + lines + "\n# end",
		"bindings:\nrun: {timeout: 5m}\n":                                                              lines + "run: {timeout: 5m}\n",
		"run: {timeout: 5m}\r\nbindings: []\r\n":                                                       "run: {timeout: 5m}\r\n" + strings.ReplaceAll(lines, "\n", "\r\n"),
	} {
		out, err := SetBindings([]byte(in), list)
		if err != nil || string(out) != want {
			t.Errorf("%q: %v\n%s", in, err, out)
			continue
		}
		if out, err = SetBindings(out, nil); err != nil || strings.Contains(string(out), "bindings") {
			t.Errorf("%q: removed: %v\n%s", in, err, out)
		}
	}
	for in, want := range map[string]string{
		"{bindings: []}\n":    "edit the file by hand",
		"bindings: [\n":       "theclaw.yaml:1:",
		"bindings: 5\n":       "must be a list",
		"run: {timeout: 5}\n": "must be a duration",
	} {
		if _, err := SetBindings([]byte(in), list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
	if _, err := SetBindings(nil, []binding.Binding{{Agent: "a", Match: binding.Match{Channel: "No"}}}); err == nil {
		t.Error("a binding that cannot be read back is written")
	}
}

// The limit of 10,000 bindings fits into a file.
func TestMostBindings(t *testing.T) {
	list := make([]binding.Binding, binding.Max)
	for i := range list {
		list[i] = binding.Binding{Agent: "agent", Match: binding.Match{Channel: "telegram", Peer: binding.Peer{Kind: "group", ID: fmt.Sprint(-1000000000 - i)}}}
	}
	text := "bindings:\n" + strings.Join(BindingLines(list), "\n") + "\n"
	if s, err := ReadHome(home(text)); err != nil || len(s.Bindings) != binding.Max {
		t.Fatalf("%d bindings, %v", len(s.Bindings), err)
	}
	if _, err := ReadHome(home(text + BindingLines(list[:1])[0] + "\n")); err == nil || !strings.Contains(err.Error(), "10000 are the most") {
		t.Errorf("one more: %v", err)
	}
}

// Whatever ids a platform has, a list is read back as it was.
func TestSetBindingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[ -~äß„\t]{1,20}`)
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) binding.Binding {
			b := binding.Binding{Agent: "a1", Match: binding.Match{Channel: "slack", Guild: rapid.OneOf(rapid.Just(""), id).Draw(t, "guild")}}
			if rapid.Bool().Draw(t, "peer") {
				b.Match.Peer = binding.Peer{Kind: "group", ID: id.Draw(t, "id")}
			}
			return b
		}), 1, 4).Draw(t, "list")
		out, err := SetBindings([]byte("# c\nrun: {timeout: 5m}\n"), list)
		if err != nil {
			t.Fatalf("%v: %v", list, err)
		}
		got, err := ReadHome(home(string(out)))
		if err != nil || fmt.Sprint(got.Bindings) != fmt.Sprint(list) || !strings.HasPrefix(string(out), "# c\nrun: {timeout: 5m}\n") {
			t.Fatalf("%v, %v\n%s", list, err, out)
		}
	})
}
