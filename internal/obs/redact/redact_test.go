package redact_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode"

	"github.com/theclaw/agents/internal/obs/redact"
)

const secret = "canary/4711+Zq"

// I15, S7: a registered secret appears in no form a log could carry.
func TestRedactHidesRegisteredSecrets(t *testing.T) {
	r := redact.New(secret, "tiny")
	forms := []string{
		secret, "x" + secret + "y", "https://h/?k=canary%2F4711%2BZq",
		base64.StdEncoding.EncodeToString([]byte(secret)), strings.Repeat(secret, 3),
	}
	for _, in := range forms {
		got := r.Redact(in)
		if strings.Contains(got, "4711") || strings.Contains(got, in) {
			t.Errorf("Redact(%q) = %q, secret still there", in, got)
		}
	}
	if got := r.Redact("a tiny word"); got != "a tiny word" {
		t.Errorf("short values must not be searched for, got %q", got)
	}
}

func TestRedactPatterns(t *testing.T) {
	var r redact.Redactor
	for in, want := range map[string]string{
		"Authorization: Bearer abcdef0123456789":      "Authorization: Bearer [redacted]",
		"key sk-proj-ABCDEFGH12345 here":              "key sk-[redacted] here",
		"ghp_0123456789abcdef":                        "ghp_[redacted]",
		`{"api_key":"0123456789"}`:                    `{"api_key":"[redacted]"}`,
		"postgres://u:pa55word@host/db":               "postgres://u:[redacted]@host/db",
		"the bearer of news, a task-list, risk-taker": "the bearer of news, a task-list, risk-taker",
		"fencing_token=5":                             "fencing_token=5",
	} {
		if got := r.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// SECURITY "log injection, huge values".
func TestRedactEscapesAndCaps(t *testing.T) {
	var r redact.Redactor
	if got, want := r.Redact("a\nb\x1b[31m\u202e\u2028\xffü"), `a\nb\x1b[31m\u202e\u2028\xffü`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got := r.Redact(strings.Repeat("é", 1<<20))
	if len(got) > redact.MaxValue || !strings.HasSuffix(got, "bytes cut)") {
		t.Errorf("cap: %d bytes, ends %q", len(got), got[len(got)-20:])
	}
	// A secret across the cut must not leave its first half.
	r.Add(secret)
	if got := r.Redact(strings.Repeat("a", redact.MaxValue-30) + secret + strings.Repeat("b", 50)); strings.Contains(got, "canary") {
		t.Errorf("half a secret at the cut: %q", got[len(got)-60:])
	}
}

// S10: the redactor's fuzz target.
func FuzzRedact(f *testing.F) {
	f.Add("plain", "tail")
	f.Add("Bearer ", "\x00\n")
	f.Add("sk-", "://a:b@")
	r := redact.New(secret)
	f.Fuzz(func(t *testing.T, before, after string) {
		got := r.Redact(before + secret + after)
		if strings.Contains(got, secret) {
			t.Fatalf("secret in %q", got)
		}
		if len(got) > redact.MaxValue {
			t.Fatalf("%d bytes", len(got))
		}
		for _, c := range got {
			if unicode.IsControl(c) {
				t.Fatalf("control character in %q", got)
			}
		}
	})
}
