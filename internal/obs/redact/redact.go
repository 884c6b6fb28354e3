package redact

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// MaxValue is the most bytes of one logged value; the rest is cut and its length
// is named.
const MaxValue = 8 << 10

// minSecret is the shortest value that is searched for: shorter ones occur in
// ordinary text and would tear every line apart.
const minSecret = 6

const mark = "[redacted]"

// Patterns of credentials nobody registered. Each keeps what helps a reader (the
// scheme, the key's name) and drops the rest. A text without one of the hints, in
// small letters, cannot match: most lines have none, and looking for a few words
// costs a tenth of the patterns.
var patterns = []struct {
	hints []string
	re    *regexp.Regexp
	with  string
}{
	{[]string{"bearer", "basic"}, regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[a-z0-9._~+/=:-]{8,}`), "${1}${2}" + mark},
	{[]string{"sk-", "rk-", "pk-"}, regexp.MustCompile(`\b(sk|rk|pk)-[A-Za-z0-9_-]{8,}`), "${1}-" + mark},
	{[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xox", "akia", "aiza"}, regexp.MustCompile(`\b(gh[pousr]_|xox[abprs]-|AKIA|AIza)[A-Za-z0-9_-]{10,}`), "${1}" + mark},
	{[]string{"api", "passw", "secret"}, regexp.MustCompile(`(?i)\b((?:x-)?api[_-]?key|passwd|password|client[_-]?secret)(["']?\s*[:=]\s*["']?)[^\s"',;&]{6,}`), "${1}${2}" + mark},
	{[]string{"://"}, regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`), "${1}" + mark + "@"},
}

// hinted reports whether one of the hints is in s, whatever the case of its ASCII
// letters. Other letters may stand for one of these when case is ignored (the
// Kelvin sign for a k), so any of them counts as a hint.
func hinted(s string, hints []string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return true
		}
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		for _, h := range hints {
			if c == h[0] && len(s)-i >= len(h) && strings.EqualFold(s[i:i+len(h)], h) {
				return true
			}
		}
	}
	return false
}

// secretKeys are attribute keys whose value is never shown, whatever it is.
var secretKeys = []string{"token", "authorization", "password", "secret", "api_key", "apikey", "cookie"}

// Redactor removes secrets from text. It is safe for concurrent use; its zero
// value knows the patterns only.
type Redactor struct {
	mu      sync.Mutex
	secrets []string
	exact   atomic.Pointer[strings.Replacer]
}

// New returns a Redactor that knows the given secrets; see [Redactor.Add].
func New(secrets ...string) *Redactor {
	r := new(Redactor)
	r.Add(secrets...)
	return r
}

// Learn returns read, of which the redactor knows each result. A nil read always fails.
func (r *Redactor) Learn(read func(ctx context.Context, ref string) (string, error)) func(ctx context.Context, ref string) (string, error) {
	return func(ctx context.Context, ref string) (string, error) {
		if read == nil {
			return "", errors.New("no secrets can be read here")
		}
		secret, err := read(ctx, ref)
		if err == nil {
			r.Add(secret)
		}
		return secret, err
	}
}

// Add registers secret values. Each is also found in its base64, URL-escaped and
// quoted forms, because request bodies and error texts carry it so. Values under
// six bytes are ignored; to add one again costs next to nothing.
func (r *Redactor) Add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := false
	for _, s := range secrets {
		if len(s) < minSecret || slices.Contains(r.secrets, s) {
			continue
		}
		more = true
		quoted := strconv.Quote(s)
		r.secrets = append(r.secrets, s,
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
			url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1])
	}
	if !more {
		return
	}
	// Longest first: a secret that begins with another one must be removed completely.
	slices.SortFunc(r.secrets, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	r.secrets = slices.Compact(r.secrets)
	pairs := make([]string, 0, 2*len(r.secrets))
	for _, s := range r.secrets {
		pairs = append(pairs, s, mark)
	}
	r.exact.Store(strings.NewReplacer(pairs...))
}

// Redact returns s without secrets, with control characters escaped, at most
// [MaxValue] bytes and a note of the length removed. The cut comes last, so half
// of a secret never survives at the edge.
func (r *Redactor) Redact(s string) string { return Cap(Escape(r.Clean(s)), MaxValue) }

// Clean returns s without secrets, of any length and with the lines that it has: for a program of
// the owner, not for a log.
func (r *Redactor) Clean(s string) string {
	if exact := r.exact.Load(); exact != nil {
		s = exact.Replace(s)
	}
	for _, p := range patterns {
		if hinted(s, p.hints) {
			s = p.re.ReplaceAllString(s, p.with)
		}
	}
	return s
}

// ReplaceAttr is the slog hook: strings, errors and anything printable are
// redacted, numbers, times and booleans pass.
func (r *Redactor) ReplaceAttr(_ []string, a slog.Attr) slog.Attr {
	if slices.Contains(secretKeys, strings.ToLower(a.Key)) {
		return slog.String(a.Key, mark)
	}
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(r.Redact(a.Value.String()))
	case slog.KindAny:
		if _, ok := a.Value.Any().(slog.Level); !ok {
			a.Value = slog.StringValue(r.Redact(plain(a.Value.Any())))
		}
	}
	return a
}

// plain prints any value once, so that no handler formats the original.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	case []byte:
		return string(v)
	}
	if b, err := json.Marshal(v); err == nil {
		return string(b)
	}
	return fmt.Sprintf("%+v", v)
}

// Escape writes control characters, line and direction marks and broken UTF-8 as
// backslash sequences, so that a text is one harmless line. Clean text is
// returned as it is.
func Escape(s string) string {
	clean := true
	for _, c := range s {
		if c == utf8.RuneError || !printable(c) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case printable(c):
			b.WriteString(s[i : i+n])
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < 0x80:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
		i += n
	}
	return b.String()
}

// printable refuses C0, C1, format characters (bidi overrides, zero width) and
// the two Unicode line ends; a terminal acts on all of these.
func printable(c rune) bool {
	return c >= 0x20 && c != 0x7f && !unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Cap cuts s to at most n bytes on a character border and says how much is gone.
func Cap(s string, n int) string {
	if len(s) <= n {
		return s
	}
	tail := fmt.Sprintf("...(%d bytes cut)", len(s)-n)
	k := max(0, n-len(tail))
	for k > 0 && !utf8.RuneStart(s[k]) {
		k--
	}
	return s[:k] + tail
}
