package source

import "testing"

// S3-48: people are asked, programs are not.
func TestIsPerson(t *testing.T) {
	for text, want := range map[string]bool{
		"external:telegram:main:dm:bob:bob":      true,
		"external:telegram:main:group:g1:bob":    true,
		"external:tui:tui-main:dm:alice:alice":   true,
		"external:whatsapp:1:bob":                true,
		Console:                                  true,
		"external:schedule:daily:dm:daily:daily": false,
		"internal:dm:default:warden":             false,
		SelfText:                                 false,
		"":                                       false,
	} {
		if got := IsPerson(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Only the console's own address is the console's, and one name is the same person in every conversation.
func TestIsConsole(t *testing.T) {
	for text, want := range map[string]bool{
		Console:                                true,
		"external:console:web:dm:ann:ann":      true,
		"external:telegram:console:dm:bob:bob": false,
		"internal:dm:default:console":          false,
		SelfText:                               false,
		"console":                              false,
	} {
		if got := IsConsole(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"external:telegram:main:dm:bob:bob", "external:telegram:other:group:g1:bob", true},
		{"external:telegram:main:group:g1:ann", "external:telegram:main:group:g1:bob", false},
		{"external:telegram:main:dm:bob:bob", "external:slack:main:dm:bob:bob", false},
		{"internal:dm:default:bob", "internal:group:g:bob", true},
		{"internal:dm:default:bob", "external:telegram:main:dm:bob:bob", false},
		{"x", "x", true},
		{SelfText, "x", false},
	} {
		if got := PeerOf(c.a) == PeerOf(c.b); got != c.same {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

// S4-56: an owner is who wrote under one of the ids, in whatever conversation, and each console.
func TestIsOwner(t *testing.T) {
	owners := []string{"telegram:bob", "slack:ann"}
	for text, want := range map[string]bool{
		"external:telegram:main:dm:bob:bob":   true,
		"external:telegram:other:group:g:bob": true,
		"external:slack:main:dm:bob:bob":      false,
		"external:telegram:main:dm:bob:ann":   false,
		"external:telegram:bob":               false, // it can be read in two ways
		"internal:dm:default:bob":             false,
		Console:                               true,
		SelfText:                              false,
		"":                                    false,
	} {
		if got := IsOwner(text, owners); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
