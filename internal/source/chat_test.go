package source

import (
	"slices"
	"testing"
)

// A9: people in a direct chat, never a group or a program.
func TestIsChat(t *testing.T) {
	for text, want := range map[string]bool{
		"external:telegram:main:dm:bob:bob":      true,
		"external:slack:main:dm:d1:bob":          true,
		"external:whatsapp:main:dm:1:1":          true,
		"external:telegram:main:group:g1:bob":    false,
		"external:discord:main:channel:c1:bob":   false,
		"external:webhook:hook:dm:bob:bob":       false,
		"external:api:main:dm:bob:bob":           false,
		"external:email:main:dm:bob:bob":         false,
		"external:tui:tui-main:dm:alice:alice":   false,
		"external:schedule:daily:dm:daily:daily": false,
		Console:                                  false,
		"internal:dm:default:warden":             false,
		SelfText:                                 false,
	} {
		a, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsChat(a.ChannelType, a.SessionType); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if !slices.IsSorted(chats) || slices.ContainsFunc(chats, func(s string) bool { return !word(s) }) {
		t.Errorf("not sorted, or no channel types: %q", chats)
	}
}
