package agents_test

import (
	"go/ast"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A page is one Markdown file, split into what is prose and what is typed.
type page struct {
	name  string // relative to the repository, with slashes
	prose string // without fenced blocks and without `code`
	code  []string
	heads map[string]bool // the anchors of its headings
}

var (
	codeSpan  = regexp.MustCompile("`[^`\n]+`")
	inlineRef = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	namedRef  = regexp.MustCompile(`(?m)^\[[^\]]+\]:\s*<?([^\s>]+)`)
	headMark  = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	// A command stands at the start of a line or after a prompt, a pipe or a
	// connective; words in the middle of a sentence are not commands.
	typed = regexp.MustCompile(`(?:^|[|&;(]\s*|\$ )(?:sudo |time )?(?:\S*/)?(make|agentctl)\s+(.*)`)
	word  = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// readPage reads a page the way a renderer would, as far as these tests need.
func readPage(t *testing.T, name string) page {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	p := page{name: name, heads: map[string]bool{}}
	var prose strings.Builder
	fence := ""
	for line := range strings.Lines(string(raw)) {
		bare := strings.TrimSpace(line)
		mark := bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
		switch {
		case fence != "" && bare == fence:
			fence = ""
		case fence != "":
			p.code = append(p.code, bare)
		case len(mark) >= 3:
			fence = mark
		default:
			if m := headMark.FindStringSubmatch(bare); m != nil {
				p.heads[anchor(m[1])] = true
			}
			for _, span := range codeSpan.FindAllString(line, -1) {
				p.code = append(p.code, strings.Trim(span, "`"))
			}
			prose.WriteString(codeSpan.ReplaceAllString(line, "code"))
		}
	}
	if fence != "" {
		t.Errorf("%s: a code block is not closed", name)
	}
	p.prose = prose.String()
	return p
}

// anchor is the fragment under which a heading is found.
func anchor(heading string) string {
	return strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// pages lists the pages at the top of the repository and everything below docs.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	err := fs.WalkDir(os.DirFS("."), "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// commandWords returns the first words typed after program: `agentctl agents
// list` gives agents. Flags before the word are skipped.
func commandWords(code []string, program string) []string {
	var words []string
	for _, line := range code {
		for m := typed.FindStringSubmatch(line); m != nil; m = typed.FindStringSubmatch(m[2]) {
			for _, w := range strings.Fields(m[2]) {
				if m[1] == program && word.MatchString(w) {
					words = append(words, w)
				}
				if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
					break
				}
			}
		}
	}
	return words
}

// makeTargets reads the rules of the Makefile that a person would type.
func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):(?:[^=]|$)`).FindAllStringSubmatch(string(raw), -1) {
		targets[m[1]] = true
	}
	return targets
}

// cobraCommands reads the first word of every Use field below cmd/agentctl.
func cobraCommands(t *testing.T) map[string]bool {
	t.Helper()
	commands := map[string]bool{"help": true, "completion": true} // cobra brings these
	for _, r := range packages(t) {
		if !under(r.dir, "cmd/agentctl") {
			continue
		}
		for _, f := range r.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				kv, ok := n.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				key, isName := kv.Key.(*ast.Ident)
				text, isText := kv.Value.(*ast.BasicLit)
				if isName && isText && key.Name == "Use" {
					if use, err := strconv.Unquote(text.Value); err == nil && use != "" {
						commands[strings.Fields(use)[0]] = true
					}
				}
				return true
			})
		}
	}
	return commands
}

// The commands in the documentation exist.
func TestDocsCommands(t *testing.T) {
	known := map[string]map[string]bool{"make": makeTargets(t), "agentctl": cobraCommands(t)}
	for _, name := range pages(t) {
		p := readPage(t, name)
		for program, words := range known {
			for _, w := range commandWords(p.code, program) {
				if !words[w] {
					t.Errorf("%s contains the command `%s %s`, which does not exist", name, program, w)
				}
			}
		}
	}
}

// Every relative link leads to a file of this repository, and every #anchor to
// a heading there.
func TestDocsLinks(t *testing.T) {
	for _, name := range pages(t) {
		p := readPage(t, name)
		for _, m := range append(inlineRef.FindAllStringSubmatch(p.prose, -1), namedRef.FindAllStringSubmatch(p.prose, -1)...) {
			link, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: link %q: %v", name, m[1], err)
				continue
			}
			if link.Scheme != "" || link.Host != "" {
				continue
			}
			target := name
			if link.Path != "" {
				target = path.Join(path.Dir(name), link.Path)
			}
			if !filepath.IsLocal(filepath.FromSlash(target)) {
				t.Errorf("%s: link %q leads out of the repository", name, m[1])
			} else if _, err := os.Stat(filepath.FromSlash(target)); err != nil {
				t.Errorf("%s: link %q leads nowhere", name, m[1])
			} else if link.Fragment != "" && path.Ext(target) == ".md" && !readPage(t, target).heads[link.Fragment] {
				t.Errorf("%s: link %q: no such heading in %s", name, m[1], target)
			}
		}
	}
}

// What the two tests above understand of a page.
func TestDocsReading(t *testing.T) {
	code := []string{
		"printf 'hello\\n' | make run", "$ make test && .bin/agentctl --home /x status", "make BUF_FROM=go tools",
		"agentctl send hello | jq .", "cd a; make build", "make", "we make things",
	}
	got := strings.Join(append(commandWords(code, "make"), commandWords(code, "agentctl")...), " ")
	if want := "run test tools build send"; got != want {
		t.Errorf("commands: got %q, want %q", got, want)
	}
	if got, want := anchor("What `make run` does, in 3 steps"), "what-make-run-does-in-3-steps"; got != want {
		t.Errorf("anchor: got %q, want %q", got, want)
	}
}
