package agents_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// These tests check the words of the repository: the names of packages and of exported
// identifiers, and the prose that people read first, which is package comments, exported
// doc comments, help texts, error texts, comments of the wire contract and of deployment
// files, and the pages. They prefer precision: a word that is also good English
// somewhere is refused only where it cannot be meant that way.

// A badName is a word that may not be the name of a package or a word of an exported
// name. An exported name is divided as in camel case: AtRest is At and Rest.
type badName struct{ not, but string }

var (
	// The name of a package, and each directory of its path.
	packageNames = []badName{
		{"beside", "what it does to the other copy: backup, mirror, merge"},
		{"broke", "failure, recovery"},
		{"door", "admission, access"},
		{"hear", "subscribe, watch"},
		{"house", "the noun of the field"},
		{"hush", "redact, silence"},
		{"kept", "retention, cache, what is stored"},
		{"line", "queue, record, or the noun of the field"},
		{"look", "poll, scan"},
		{"rest", "idle, or the noun of the field"},
		{"room", "the noun of the field"},
		{"said", "record, output"},
		{"story", "log, history"},
		{"tale", "log, history"},
		{"tell", "notify, publish"},
		{"told", "report, notification"},
		{"tomb", "tombstone"},
		{"voice", "publisher, output"},
	}
	// A word anywhere in an exported name.
	nameWords = []badName{
		{"Beside", "what it does: next to, alongside"},
		{"Hear", "Subscribe, Watch"},
		{"Heard", "Received"},
		{"Hush", "Redact, Silence"},
		{"Hushed", "Redacted, Silenced"},
		{"Look", "Poll, Scan, Recheck"}, // exec.LookPath and os.LookupEnv are other words
		{"Said", "Recorded, Output"},
		{"Story", "Log, History"},
		{"Tale", "Log, History"},
		{"Tell", "Report, Notify, Publish"},
		{"Told", "Report, Notification"},
		{"Tomb", "Tombstone"},
		{"Tombs", "Tombstones"},
		{"Whoever", "Caller, Subscribers"},
	}
	// A complete exported name.
	completeNames = []badName{
		{"Door", "Admission, Access"},
		{"House", "the noun of the field"},
		{"Kept", "Retained, Stored"},
		{"Left", "Remaining"},
		{"Rest", "Idle, Remaining"},
		{"Room", "the noun of the field"},
		{"Voice", "Publisher, Output"},
		{"Broke", "Failed"},
	}
	// The last word of the name of a type.
	typeEndings = []badName{
		{"Base", "the noun of what it is"},
		{"Helper", "the noun of what it is"},
		{"Impl", "the noun of what it is"},
		{"Manager", "the noun of what it does: Service, Pool, Registry"},
	}
)

// A phrase is a regular expression over lower-case text, where a blank is any white
// space, the words to write in its place, a sentence that it finds and, where the words
// have a good use, an expression for that and a sentence that has it.
type phrase struct{ not, but, bad, except, good string }

var phrases = []phrase{
	{not: `(?:comes?|came|coming) to (?:its|their|an) end`, but: "finish, outcome", bad: "The turn came to its end."},
	{not: `who(?:ever)? asks?|those who ask`, but: "the caller", bad: "It answers whoever asks."},
	{not: `who(?:ever)? (?:waits|watches|listens)|those who wait`, but: "waiters, subscribers", bad: "It wakes whoever waits."},
	{not: `of before`, but: "the previous", bad: "The token of before is refused."},
	{not: `for good`, but: "permanently", bad: "The send failed for good.", except: `for good (?:reasons?|measure)`, good: "It is refused for good reason."},
	{not: `by (?:itself|himself|herself|themselves)`, but: "automatically, independently", bad: "It is tried again by itself."},
	{not: `owns how`, but: "what it does, as a verb", bad: "It owns how a turn ends."},
	{not: `cut[ -]off`, but: "interrupted, truncated, disconnected", bad: "A turn that was cut off goes on."},
	{not: `rooms?`, but: "package, module, layer", bad: "One room calls the engine.", except: `(?:no|enough|more|make|leaves?|chat|matrix) rooms?|room (?:for|to)`, good: "There is no room to write."},
	{not: `houses?`, but: "repository, project", bad: "The rules of the house."},
	{not: `beside`, but: "next to, alongside", bad: "The file beside it.", good: "It is slow besides."},
	{not: `the whole of|whole(?:[.,;:)]+| or| and| again)`, but: "complete, all of", bad: "The answer arrives whole.", except: `as a whole|on the whole|in whole or in part`, good: "It reads the whole file, as a whole."},
	{not: `told`, but: "notified, reported, recorded", bad: "The registry is told.", except: `told apart`, good: "They cannot be told apart."},
	{not: `tells`, but: "reports, notifies, publishes", bad: "The store tells the registry.", except: `tells [^.,;:]{0,40}\bapart`, good: "This tells the two apart."},
	{not: `hears?|heard`, but: "receives, is subscribed to", bad: "The hub hears of it."},
	{not: `look(?:s|ed|ing)? again`, but: "poll, recheck", bad: "It looks again in a second."},
	{not: `stor(?:y|ies)|tales?`, but: "log, history", bad: "The log has the story of it."},
	{not: `doors?`, but: "admission, access", bad: "The message stands at the door."},
	{not: `hush(?:e[sd]|ing)?`, but: "redact, silence", bad: "Secrets are hushed."},
	{not: `tombs?`, but: "tombstone", bad: "A tomb is left.", good: "A tombstone is left."},
	{not: `blot(?:s|ted|ting)?`, but: "redact", bad: "Secrets are blotted out."},
	{not: `for ever`, but: "forever", bad: "It waits for ever."},
	{not: `without a word`, but: "silently", bad: "It is dropped without a word."},
	{not: `anew`, but: "again, from the start", bad: "It begins anew."},
	{not: `each [0-9]+ ?(?:ns|us|ms|s|seconds?|min|minutes?|h|hours?|days?)`, but: "every", bad: "It polls each 30 s.", good: "It polls every 30 s."},
	{not: `(?:behavi|col|fav|hon|neighb)our\w*`, but: "American spelling: -or", bad: "The colour is red."},
	{not: `(?:author|initial|maxim|minim|normal|optim|organ|recogn|serial|summar|synchron)is(?:e[ds]?|ers?|ing|ations?)`, but: "American spelling: -ize", bad: "It is recognised.", except: `summarise`, good: "The setting summarise is an organism."},
	{not: `(?:dial|label|model|travel)l(?:ed|ing)|licen[c]es?|artefacts?|grey`, but: "American spelling", bad: "The address is dialled."},
}

// A finding is one word in one line.
type finding struct {
	file     string
	line     int
	not, but string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s", f.file, f.line, f.not, f.but)
}

// A passage is prose that begins at a line of a file. Its line breaks are those of the file.
type passage struct {
	line int
	text string
}

// compiled are the expressions of phrases: what is refused, and what is good.
var compiled = func() (list [][2]*regexp.Regexp) {
	words := func(s string) *regexp.Regexp {
		return regexp.MustCompile(`\b(?:` + strings.ReplaceAll(s, " ", `\s+`) + `)(?:\b|\s|\z)`)
	}
	for _, p := range phrases {
		pair := [2]*regexp.Regexp{words(p.not)}
		if p.except != "" {
			pair[1] = words(p.except)
		}
		list = append(list, pair)
	}
	return list
}()

// inProse are the phrases that a passage of a file has.
func inProse(file string, p passage) (found []finding) {
	lower := strings.ToLower(p.text)
	for i, c := range compiled {
		var good [][]int
		if c[1] != nil {
			good = c[1].FindAllStringIndex(lower, -1)
		}
		for _, at := range c[0].FindAllStringIndex(lower, -1) {
			if !slices.ContainsFunc(good, func(g []int) bool { return g[0] <= at[0] && at[0] < g[1] }) {
				said := strings.Trim(strings.Join(strings.Fields(lower[at[0]:at[1]]), " "), ".,;:)")
				found = append(found, finding{file, p.line + strings.Count(lower[:at[0]], "\n"), said, phrases[i].but})
			}
		}
	}
	return found
}

// camel divides a name into its words: HTTPServerID is HTTP, Server and ID.
func camel(name string) (words []string) {
	runes, start := []rune(name), 0
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			if w := strings.Trim(string(runes[start:i]), "_"); w != "" {
				words = append(words, w)
			}
			start = i
		}
	}
	return words
}

// inName are the bad words of an exported name.
func inName(name string, isType bool) (found []badName) {
	words := camel(name)
	for _, b := range nameWords {
		if slices.Contains(words, b.not) && name != "LookPath" {
			found = append(found, b)
		}
	}
	for _, b := range completeNames {
		if name == b.not {
			found = append(found, b)
		}
	}
	for _, b := range typeEndings {
		if isType && words[len(words)-1] == b.not {
			found = append(found, b)
		}
	}
	return found
}

// inPackageName are the bad words of a package's path and name.
func inPackageName(dir, name string) (found []badName) {
	parts := append(strings.Split(dir, "/"), strings.TrimSuffix(name, "_test"))
	for _, b := range packageNames {
		if slices.Contains(parts, b.not) {
			found = append(found, b)
		}
	}
	return found
}

// packageComment says what is wrong with the beginning of a package comment, or nothing.
// It begins "Package x " and a verb that says what x does; owning is not doing. The
// comment of a program begins "Command x " and its folder's name.
func packageComment(dir, name, text string) string {
	begin := "Package " + name + " "
	if name == "main" {
		begin = "Command " + path.Base(dir) + " "
	}
	rest, ok := strings.CutPrefix(text, begin)
	if !ok {
		return fmt.Sprintf("begin the package comment with %q", begin)
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(rest, "\n", " ")), " ")
	verb = strings.TrimSuffix(verb, ",")
	if name != "main" && (verb == "owns" || !strings.HasSuffix(verb, "s")) {
		return fmt.Sprintf("begin the package comment with %q and a verb other than owns, not %q", begin, verb)
	}
	return ""
}

// commentText is a comment without its marks, line by line. Indented lines, which are
// code and drawings, are left out.
func commentText(set *token.FileSet, group *ast.CommentGroup) passage {
	var lines []string
	for _, c := range group.List {
		text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/")
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "     ") {
				line = "."
			}
			lines = append(lines, line)
		}
	}
	return passage{set.Position(group.Pos()).Line, strings.Join(lines, "\n")}
}

// printedFields are the fields of fault.Error and of cobra.Command that people read.
var printedFields = strings.Fields("What Fix Short Long Example")

// inFile are the findings in a Go file: its exported names, the package comment, the doc
// comments of what is exported, and its texts for people: errors, and in a program all texts.
func inFile(set *token.FileSet, name string, f *ast.File) (found []finding) {
	prose := func(group *ast.CommentGroup) {
		if group != nil {
			found = append(found, inProse(name, commentText(set, group))...)
		}
	}
	ident := func(id *ast.Ident, isType bool) bool {
		if !id.IsExported() {
			return false
		}
		for _, b := range inName(id.Name, isType) {
			found = append(found, finding{name, set.Position(id.Pos()).Line, id.Name, b.but + " instead of " + b.not})
		}
		return true
	}
	texts := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, " ") {
					found = append(found, inProse(name, passage{set.Position(lit.Pos()).Line, s})...)
				}
				return false
			}
			return true
		})
	}
	prose(f.Doc)
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if ident(d.Name, false) {
				prose(d.Doc)
			}
		case *ast.GenDecl:
			exported := false
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if ident(s.Name, true) {
						exported = true
						prose(s.Doc)
						fields(s.Type, prose)
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						if ident(id, false) {
							exported = true
							prose(s.Doc)
							prose(s.Comment)
							break
						}
					}
				}
			}
			if exported {
				prose(d.Doc)
			}
		}
	}
	if underAny(name, []string{"cmd", "tools"}) {
		texts(f)
		return found
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called := text(n.Fun); called == "errors.New" || called == "fmt.Errorf" || strings.HasPrefix(called, "fault.") {
				for _, arg := range n.Args {
					texts(arg)
				}
				return false
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(printedFields, key.Name) {
				texts(n.Value)
				return false
			}
		}
		return true
	})
	return found
}

// fields gives the comments of the exported fields of a struct and methods of an interface.
func fields(e ast.Expr, prose func(*ast.CommentGroup)) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return
	}
	for _, f := range list.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			prose(f.Doc)
			prose(f.Comment)
		}
	}
}

var linkTarget = regexp.MustCompile(`\]\([^)]*\)`)

// markdownText is the prose of a page: without fenced blocks, `code` and the targets of links.
func markdownText(raw string) passage {
	var lines []string
	fence := ""
	for line := range strings.Lines(raw) {
		line = strings.TrimSuffix(line, "\n")
		bare := strings.TrimSpace(line)
		mark := bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
		switch {
		case fence != "" && bare == fence:
			fence, line = "", "."
		case fence != "":
			line = "."
		case len(mark) >= 3:
			fence, line = mark, "."
		default:
			line = linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(line, "code"), "]")
		}
		lines = append(lines, line)
	}
	return passage{1, strings.Join(lines, "\n")}
}

// marked is the text of comments that a mark begins, up to the end of the line.
func marked(raw, mark string) passage {
	var lines []string
	for line := range strings.Lines(raw) {
		comment := "."
		if i := strings.Index(" "+strings.TrimLeft(line, " \t"), " "+mark); i >= 0 {
			comment = strings.TrimLeft(line, " \t")[i+len(mark):]
		}
		lines = append(lines, strings.TrimSuffix(comment, "\n"))
	}
	return passage{1, strings.Join(lines, "\n")}
}

// textFiles are the pages, the wire contract, and the files of build and deployment,
// each with the way to its prose.
func textFiles(t *testing.T) map[string]func(raw string) passage {
	t.Helper()
	files := map[string]func(string) passage{}
	hash := func(raw string) passage { return marked(raw, "#") }
	for _, name := range append(pages(t), "Makefile", ".ci/run") {
		files[name] = hash
		if path.Ext(name) == ".md" {
			files[name] = markdownText
		}
	}
	for _, root := range []string{"deploy", "proto/theclaw"} {
		err := fs.WalkDir(os.DirFS("."), root, func(name string, d fs.DirEntry, err error) error {
			switch ext := path.Ext(name); {
			case err != nil || d.IsDir():
			case ext == ".md":
				files[name] = markdownText
			case ext == ".proto":
				files[name] = func(raw string) passage { return marked(raw, "//") }
			case slices.Contains(strings.Fields(".yaml .yml .service .timer .tpl"), ext), d.Name() == "Dockerfile":
				files[name] = hash
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Names, comments, texts and pages use the words of the field, in plain American English.
func TestWords(t *testing.T) {
	var found []finding
	for _, r := range packages(t) {
		for _, f := range r.files {
			if f.test {
				continue
			}
			name := f.ast.Name.Name
			for _, b := range inPackageName(r.dir, name) {
				found = append(found, finding{f.name, f.set.Position(f.ast.Name.Pos()).Line, "package " + b.not, b.but})
			}
			if doc := f.ast.Doc.Text(); doc != "" {
				if p := packageComment(r.dir, name, doc); p != "" {
					found = append(found, finding{f.name, f.set.Position(f.ast.Doc.Pos()).Line, strings.SplitN(doc, "\n", 2)[0], p})
				}
			}
			found = append(found, inFile(f.set, f.name, f.ast)...)
		}
	}
	files := textFiles(t)
	for name, prose := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, inProse(name, prose(string(raw)))...)
	}
	if len(files) < 30 {
		t.Errorf("only %d text files were read", len(files))
	}
	slices.SortFunc(found, func(a, b finding) int {
		return strings.Compare(fmt.Sprintf("%s:%06d", a.file, a.line), fmt.Sprintf("%s:%06d", b.file, b.line))
	})
	for _, f := range found {
		t.Error(f)
	}
}

// The lists themselves: each phrase finds its sentence, and none finds good English.
func TestPhrases(t *testing.T) {
	for _, p := range phrases {
		bad := inProse("x", passage{1, p.bad})
		if len(bad) != 1 || bad[0].but != p.but {
			t.Errorf("%q: found %v, want one %q", p.bad, bad, p.but)
		}
		for _, good := range []string{p.good, p.but} {
			if found := inProse("x", passage{1, good}); len(found) != 0 {
				t.Errorf("%q: found %v", good, found)
			}
		}
		if p.except != "" && p.good == "" {
			t.Errorf("%q: an exception without a sentence", p.not)
		}
	}
	wrapped := inProse("x", passage{7, "One.\nThe token\nof\nbefore is refused."})
	if len(wrapped) != 1 || wrapped[0].String() != `x:9: "of before": write the previous` {
		t.Errorf("a phrase over two lines: %v", wrapped)
	}
}

// Each bad name is found in its place, and similar good names are not.
func TestNames(t *testing.T) {
	for _, b := range packageNames {
		if len(inPackageName("internal/"+b.not, "x")) != 1 || len(inPackageName(".", b.not+"_test")) != 1 {
			t.Errorf("package %s is not found", b.not)
		}
	}
	for _, b := range nameWords {
		if len(inName(b.not, false)) != 1 || len(inName("A"+b.not+"ID", false)) != 1 {
			t.Errorf("%s is not found", b.not)
		}
	}
	for _, b := range completeNames {
		if len(inName(b.not, false)) != 1 || len(inName("A"+b.not, true)) != 0 {
			t.Errorf("%s is not found, or too often", b.not)
		}
	}
	for _, b := range typeEndings {
		if len(inName("Lease"+b.not, true)) != 1 || len(inName(b.not+"URL", true)) != 0 || len(inName(b.not, false)) != 0 {
			t.Errorf("%s is not found, or too often", b.not)
		}
	}
	for _, good := range strings.Fields("Lines LookupEnv LookPath Tombstone BaseURL History Storyboard HTTPServerID Baseline") {
		if found := inName(good, true); len(found) != 0 {
			t.Errorf("%s: found %v", good, found)
		}
	}
	if len(inPackageName("internal/store/sqlite", "storytest")) != 0 {
		t.Error("a longer name is found")
	}
	for name, want := range map[string]string{"HTTPServerID": "HTTP Server ID", "AtRest": "At Rest", "TOLD_Once": "TOLD Once", "A": "A"} {
		if got := strings.Join(camel(name), " "); got != want {
			t.Errorf("%s: divided into %q, want %q", name, got, want)
		}
	}
}

// What the tests above read of a file.
func TestProseOfFiles(t *testing.T) {
	for dir, c := range map[string]struct {
		name, text string
		ok         bool
	}{
		"a":       {"a", "Package a reads files.", true},
		"j":       {"j", "Package j finds, exports and erases files.", true},
		"b":       {"b", "Package b\nreads files.", false},
		"c":       {"c", "Package c owns how files are read.", false},
		"d":       {"d", "Package d, which reads files.", false},
		"e":       {"e", "Package e the reader.", false},
		"f":       {"f", "It reads files.", false},
		"cmd/g":   {"main", "Command g reads files.", true},
		"cmd/h":   {"main", "Package main reads files.", false},
		"i_files": {"i", "Package i is the format of files.", true},
	} {
		if p := packageComment(dir, c.name, c.text); (p == "") != c.ok {
			t.Errorf("%q: %s", c.text, p)
		}
	}
	source := `// Package x is a house.
package x

// Told is a room.
//
//	a room of code
type Told struct {
	// A whole, beside it.
	A int
	b int // a room
}

// hidden is a room.
var hidden = "a room"

// B waits for
// ever.
func (Told) B() error {
	return errors.New("the " + "room is full") // a room
}

var c = fault.Error{What: "cut off", Meta: "cut off here"}
`
	for name, want := range map[string]string{
		"internal/x.go": "1:house 4:room 4:told 7:Told 8:beside 8:whole 16:for ever 19:room 22:cut off",
		"cmd/x.go":      "1:house 4:room 4:told 7:Told 8:beside 8:whole 14:room 16:for ever 19:room 22:cut off 22:cut off",
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(inFile(set, name, f)); got != want {
			t.Errorf("%s: found %q, want %q", name, got, want)
		}
	}
	page := "# A room\n\n```\na room\n```\n`room` and [text](x.md#room) told\n"
	if got, want := brief(inProse("x", markdownText(page))), "1:room 6:told"; got != want {
		t.Errorf("page: found %q, want %q", got, want)
	}
	if got, want := brief(inProse("x", marked("run: ## a room\n# told\nroom\n\t# a door\na#room\n", "#"))), "1:room 2:told 4:door"; got != want {
		t.Errorf("comments: found %q, want %q", got, want)
	}
}

// brief are findings as line and word, in order.
func brief(found []finding) string {
	slices.SortFunc(found, func(a, b finding) int { return cmp.Or(a.line-b.line, strings.Compare(a.not, b.not)) })
	var words []string
	for _, f := range found {
		words = append(words, fmt.Sprintf("%d:%s", f.line, f.not))
	}
	return strings.Join(words, " ")
}
