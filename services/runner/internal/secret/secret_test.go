package secret_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/secret"
)

// S4-93: what a server sends back of a secret is replaced by its name: as it is, encoded, and, of the value of a header with
// a scheme, the part behind the scheme.
func TestWithout(t *testing.T) {
	const key = `sk/1+2"3`
	sent := secret.Sent{"Bearer " + key: "HEADER", "two words": "PLAIN", "": "EMPTY"}
	for _, text := range []string{
		"Bearer " + key, key, `{"key":"sk/1+2\"3"}`, base64.StdEncoding.EncodeToString([]byte(key)), "q=sk%2F1%2B2%223", "two words", "two+words",
	} {
		got := sent.Without("it was " + text + " there")
		if !strings.Contains(got, "{{secret:") || strings.Contains(got, text) || strings.Contains(got, "sk/1") {
			t.Errorf("%q: %q", text, got)
		}
	}
	for _, text := range []string{"Bearer", "words", "two"} {
		if got := sent.Without(text); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A value that begins with another one is replaced completely, and the same text always has the same result: descriptions of
// tools are compared by it.
func TestWithoutLonger(t *testing.T) {
	sent, longest := secret.Sent{}, ""
	for _, name := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} {
		longest += "tok-" + name
		sent[longest] = name
	}
	if got := sent.Without("it was " + longest + " there"); got != "it was {{secret:H}} there" {
		t.Errorf("%q", got)
	}
}
