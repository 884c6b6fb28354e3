package sessions

import "testing"

// The list says of each kind of key where its conversation is.
func TestPlace(t *testing.T) {
	for key, want := range map[string]string{
		"agent:a1:main":                          "main",
		"agent:a1:dm:7":                          "dm",
		"agent:a1:telegram:dm:7":                 "telegram dm",
		"agent:a1:telegram:tg:dm:7":              "tg dm",
		"agent:a1:telegram:tg:all":               "tg all",
		"agent:a1:discord:channel:77":            "discord channel",
		"agent:a1:telegram:group:-100:thread:5":  "telegram group thread",
		"agent:a1:session:notes":                 "session",
		"agent:a1:telegram:tg:dm:7:thread:1:2:3": "tg dm thread",
		"no key":                                 "",
	} {
		if got := place(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
