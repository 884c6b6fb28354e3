package support

import (
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/obs/redact"
)

// maxSecret is the largest file in bytes that is taken to be a secret.
const maxSecret = 64 << 10

var (
	// secretName is the name of a variable or a setting whose value may be a secret.
	secretName = regexp.MustCompile(`(?i)(key|token|secret|passw|credential|authorization|cookie|dsn|private|_pat$|_pwd$)`)
	// setting is a line of YAML or JSON with a key and a value.
	setting = regexp.MustCompile(`^(\s*(?:-\s+)?\{?\s*["']?)([A-Za-z0-9_.-]+)(["']?\s*:\s*)(\S.*)$`)
	// inner is a key with a value within a line.
	inner = regexp.MustCompile(`([{,]\s*["']?)([A-Za-z0-9_.-]+)(["']?\s*:\s*)("[^"]*"|'[^']*'|[^,}\s]+)`)
	// armored is a line of a private key or a certificate.
	armored = regexp.MustCompile(`-----(BEGIN|END) [A-Z ]+-----`)
	// secretFile is the name of a file that is one.
	secretFile = regexp.MustCompile(`(?i)(^token$|\.(key|pem)$|secret|passw)`)
)

const removed = "[removed]"

// cleaner removes secrets from lines.
type cleaner struct{ redactor *redact.Redactor }

// newCleaner learns the secrets of a home and of an environment: files that are one or that
// settings name, and variables whose name says so or that settings name.
func newCleaner(home layout.Home, environ []string, userHome string, settings [][]byte) cleaner {
	r := redact.New()
	variables := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
		if secretName.MatchString(name) {
			add(r, value)
		}
	}
	for _, v := range environ {
		learn(r, v)
	}
	for _, text := range settings {
		learn(r, string(text))
		for _, ref := range provider.References(string(text)) {
			if ref.Kind == "env" {
				add(r, variables[ref.Name])
			} else {
				addFile(r, ref.Path(home.Path(), userHome))
			}
		}
	}
	for _, dir := range []string{home.Path(), home.RunDir(), home.TLSDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // what cannot be read is in no line
		}
		for _, e := range entries {
			if e.Type().IsRegular() && (dir == home.TLSDir() || secretFile.MatchString(e.Name())) {
				addFile(r, filepath.Join(dir, e.Name()))
			}
		}
	}
	return cleaner{r}
}

// add registers a secret, whole and by lines: a key file may have several.
func add(r *redact.Redactor, secret string) {
	secret = strings.TrimSpace(secret)
	r.Add(secret)
	for line := range strings.Lines(secret) {
		if line = strings.TrimSpace(line); !armored.MatchString(line) {
			r.Add(line)
		}
	}
}

// learn registers what stands in a text in place of a secret: passwords and parameters of
// URLs, and values of settings whose name says so.
func learn(r *redact.Redactor, text string) {
	both := func(s string) {
		add(r, s)
		if plain, err := url.QueryUnescape(s); err == nil {
			add(r, plain)
		}
		if plain, err := url.PathUnescape(s); err == nil {
			add(r, plain)
		}
	}
	for line := range strings.Lines(text) {
		for _, m := range userinfo.FindAllStringSubmatch(line, -1) {
			both(m[1])
		}
		for _, m := range query.FindAllStringSubmatch(line, -1) {
			both(m[2])
		}
		for _, m := range append(inner.FindAllStringSubmatch(line, -1), setting.FindStringSubmatch(strings.TrimRight(line, "\n"))) {
			if m != nil && secretName.MatchString(m[2]) && isSecret(bare(m[4])) {
				add(r, bare(m[4]))
			}
		}
	}
}

// userinfo is the password in a URL.
var userinfo = regexp.MustCompile(`://[^/\s:@]*:([^/\s@]+)@`)

func addFile(r *redact.Redactor, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Mode().Type()&^fs.ModeSymlink != 0 {
		return
	}
	if b, err := io.ReadAll(io.LimitReader(f, maxSecret)); err == nil {
		add(r, string(b))
	}
}

// text is a text without secrets. What stands below a setting whose name says that it may
// be one, as a block or a list, is left out too.
func (c cleaner) text(text string) string {
	var out strings.Builder
	below := -1 // the indent of such a setting
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		bare := strings.TrimLeft(line, " ")
		indent := len(line) - len(bare)
		switch {
		case below >= 0 && bare == "":
		case below >= 0 && (indent > below || indent == below && strings.HasPrefix(bare, "- ")):
			if item := strings.Trim(strings.TrimPrefix(bare, "- "), `"'`); !strings.HasPrefix(item, "env:") && !strings.HasPrefix(item, "file:") {
				line = line[:indent] + removed
			}
		default:
			below = -1
			if m := opens.FindStringSubmatch(line); m != nil && secretName.MatchString(m[1]) {
				below = indent
			}
		}
		out.WriteString(c.line(line))
		out.WriteByte('\n')
	}
	return out.String()
}

// opens is a line of YAML whose value stands below it.
var opens = regexp.MustCompile(`^\s*(?:-\s+)?["']?([A-Za-z0-9_.-]+)["']?\s*:\s*(?:[|>][0-9+-]*)?\s*(?:#.*)?$`)

// query is a part of a URL whose name says that it may be a secret.
var query = regexp.MustCompile(`(?i)([?&;][^=\s&;"']*(?:key|token|secret|sig|passw|auth|code)[^=\s&;"']*=)([^&;\s"']+)`)

// line is a line without secrets.
func (c cleaner) line(line string) string {
	if c.redactor == nil {
		return removed
	}
	line = query.ReplaceAllString(line, "${1}"+removed)
	line = inner.ReplaceAllStringFunc(line, func(s string) string { return c.value(inner.FindStringSubmatch(s)) })
	if m := setting.FindStringSubmatch(line); m != nil {
		line = c.value(m)
	}
	return c.redactor.Redact(line)
}

// value is a key with its value, which is left out where it may be a secret. A reference
// to one stays, in a form that no pattern of a credential takes for one.
func (c cleaner) value(m []string) string {
	word := bare(m[4])
	switch {
	case !secretName.MatchString(m[2]):
		return m[0]
	case whole.MatchString(word) && c.redactor.Redact(word) == word:
		return m[1] + m[2] + " -> " + m[4]
	case !isSecret(word):
		return m[0]
	}
	end := m[4][len(strings.TrimRight(m[4], `}, `)):]
	return m[1] + m[2] + m[3] + `"` + removed + `"` + end
}

// bare is a value of YAML or JSON without its quotes and what follows it.
func bare(value string) string { return strings.Trim(value, `"', }`) }

// isSecret reports whether the value of a setting whose name says so may be a secret.
func isSecret(word string) bool {
	return word != "" && !whole.MatchString(word) && !strings.HasPrefix(word, "{") && !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "|") && !strings.HasPrefix(word, ">") &&
		word != "null" && word != "~" && !number.MatchString(word)
}

// whole is a reference and nothing else.
var whole = regexp.MustCompile(`^(env|file):[^\s"',}\]]+$`)

// number is a value that is no secret, such as keep_tokens: 4000.
var number = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]+)?$|^(true|false|set|missing|none)$`)
