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
