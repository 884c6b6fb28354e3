package redact

import "testing"

// A hint may be there without a match; a match without a hint would let a secret
// through.
func TestNoMatchWithoutAHint(t *testing.T) {
	for _, s := range []string{
		"bearer abcdef0123456789", "BeArEr\tabcdef0123456789", "BASIC dXNlcjpwYXNz", "baſic dXNlcjpwYXNz",
		"sk-ABCDEFGH12345", "rk-ABCDEFGH12345", "pk-ABCDEFGH12345",
		"ghp_0123456789abcdef", "gho_0123456789abcdef", "ghu_0123456789abcdef", "ghs_0123456789abcdef", "ghr_0123456789abcdef",
		"xoxb-0123456789abcdef", "AKIA0123456789ABCDEF", "AIza0123456789abcdef",
		"API_KEY=0123456789", "x-api-key: 0123456789", "apiKey=0123456789", "Passwd: 0123456789", "PASSWORD=0123456789", "client-secret=0123456789", "client\u017fecret=1234567", "api_\u212aey=0123456789",
		"postgres://u:pa55word@host/db", "é://u:pa55word@host",
	} {
		matched := false
		for _, p := range patterns {
			if m := p.re.MatchString(s); m {
				matched = true
				if !hinted(s, p.hints) {
					t.Errorf("%q matches %s and has no hint", s, p.re)
				}
			}
		}
		if !matched {
			t.Errorf("%q matches nothing", s)
		}
	}
	if hinted("[INFO] route: inbox event 31", patterns[2].hints) {
		t.Error("an ordinary line has a hint")
	}
}
