package file

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/theclaw/agents/internal/filetree"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

const (
	// maxMatches bounds the lines that grep shows.
	maxMatches = 100
	// maxMatch bounds one of them, in bytes.
	maxMatch = 400
	// maxEntries bounds the entries that find and ls show.
	maxEntries = 1000
	// maxListed bounds the entries of a directory that ls sorts.
	maxListed = 10_000
	// maxPattern bounds a pattern, in bytes, maxBraces the groups of a glob and maxChoices
	// their alternatives: the time to match a name grows with the product of the groups.
	maxPattern = 1000
	maxBraces  = 4
	maxChoices = 20
	// maxProgram bounds the instructions of a regular expression, and maxPlain the line that
	// is searched without checking the time, in bytes: a search takes their product.
	maxProgram = 5000
	maxPlain   = 16 << 10
	// maxLine bounds a line, in bytes: a longer one is searched in parts.
	maxLine = 1 << 20
	// searchTime bounds one search.
	searchTime = 10 * time.Second
)

// skipped are the names that are not searched or listed, unless a call names them.
func skipped(c toolset.Call) []string {
	if l := c.Place.Config.GetToolLimits(); l != nil {
		return l.GetFsSkip()
	}
	return []string{".git", "node_modules", outputDir}
}

const skipNote = " Directories such as .git and node_modules are left out unless path names them."

var grepSpec = toolset.Spec{
	Name:        nameGrep,
	Description: "Searches the files in the working directory for a regular expression (RE2), line by line; at most 100 matches and 10 seconds." + skipNote,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"the regular expression; (?i) in front ignores case"},` +
		`"path":{"type":"string","description":"the directory or file to search; the working directory unless given"},` +
		`"glob":{"type":"string","description":"search only files with such names, as in find"}},` +
		`"required":["pattern"],"additionalProperties":false}`),
	Summary: toolset.Summarize("pattern", "path"),
}

var findSpec = toolset.Spec{
	Name:        nameFind,
	Description: "Finds files and directories in the working directory by name; at most 1,000 and 10 seconds. Directories end in /." + skipNote,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"a glob: *.go for names in every directory, with / for paths below path: src/**/*_test.go"},` +
		`"path":{"type":"string","description":"the directory to search; the working directory unless given"}},` +
		`"required":["pattern"],"additionalProperties":false}`),
	Summary: toolset.Summarize("pattern", "path"),
}

var lsSpec = toolset.Spec{
	Name:        nameLs,
	Description: "Lists a directory in the working directory: names, and sizes of files in bytes; at most 1,000. Directories end in /." + skipNote,
	Schema: json.RawMessage(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the directory; the working directory unless given"}},` +
		`"additionalProperties":false}`),
	Summary: toolset.Summarize("path"),
}

// errFull ends a walk whose result is full.
var errFull = errors.New("the result is full")

// listing collects the lines of a result.
type listing struct {
	text  strings.Builder
	lines int
	most  int
	// skipped are names that are left out.
	skipped []string
	notes   []string

	unread int // files and directories
}

// add adds a line; errFull: the result is full, and the line is not in it.
func (l *listing) add(line string) error {
	line, _ = clean(line)
	line = strings.ReplaceAll(line, "\n", " ")
	if l.lines == l.most || l.text.Len()+len(line) > maxShown {
		return errFull
	}
	l.lines++
	l.text.WriteString(line + "\n")
	return nil
}

// result is the lines and what is to be known about them.
func (l *listing) result(none string) string {
	if l.lines == 0 {
		l.notes = append([]string{none}, l.notes...)
	}
	if len(l.notes) > 0 {
		l.text.WriteString("[" + strings.Join(l.notes, "; ") + "]")
	}
	return strings.TrimSuffix(l.text.String(), "\n")
}

// search walks what is below a path, for at most searchTime, and visits all that is not
// skipped.
func (l *listing) search(ctx context.Context, d *dir, top string, visit func(context.Context, filetree.Entry) error) error {
	limited, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	err := filetree.Walk(limited, d.Root, top, func(e filetree.Entry) error {
		if e.Path != top && slices.Contains(l.skipped, e.Name()) {
			return skip(e)
		}
		return visit(limited, e)
	}, func(string, error) { l.unread++ })
	switch {
	case ctx.Err() != nil:
		return errEnded
	case errors.Is(err, errFull):
		l.notes = append(l.notes, fmt.Sprintf("there are more than these %d: search a smaller path, or for something rarer", l.lines))
	case limited.Err() != nil:
		l.notes = append(l.notes, fmt.Sprintf("stopped after %s, and not all was searched: search a smaller path", searchTime))
	case err != nil:
		return problem(top, err)
	}
	if l.unread > 0 {
		l.notes = append(l.notes, fmt.Sprintf("left out because they cannot be read: %d", l.unread))
	}
	return nil
}

// skip leaves out an entry and what is below it.
func skip(e filetree.Entry) error {
	if e.Info.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// glob matches names: a pattern without a slash the name in every directory, any other
// the path from the top.
type glob struct{ pattern, top string }

func newGlob(pattern, top string) (glob, error) {
	g := glob{strings.TrimPrefix(pattern, "./"), top}
	switch {
	case pattern == "":
		return g, errors.New("the glob is empty: give one such as *.go or src/**/*.go")
	case len(pattern) > maxPattern:
		return g, fmt.Errorf("the glob has more than %d bytes: use a shorter one", maxPattern)
	case strings.Count(pattern, "{") > maxBraces:
		return g, fmt.Errorf("the glob has more than %d groups in braces: use fewer", maxBraces)
	case strings.Contains(pattern, "{") && strings.Count(pattern, ",") > maxChoices-maxBraces:
		return g, fmt.Errorf("the glob has more than %d alternatives in braces: use fewer", maxChoices-maxBraces)
	case !doublestar.ValidatePattern(g.pattern):
		return g, fmt.Errorf("%s is not a glob, a bracket or a brace is not closed: close it, or put \\ in front of it", shown(pattern))
	}
	return g, nil
}

func (g glob) match(e filetree.Entry) bool {
	name := e.Name()
	if strings.Contains(g.pattern, "/") {
		name = e.Path
		if g.top != "." {
			name = strings.TrimPrefix(name, g.top+"/")
		}
	}
	ok, err := doublestar.Match(g.pattern, name)
	return ok && err == nil
}

// find implements the tool find.
func find(ctx context.Context, d *dir, c toolset.Call) (string, error) {
	a := struct{ Pattern, Path string }{Path: "."}
	if err := parse(c, &a); err != nil {
		return "", err
	}
	top, info, err := d.find(a.Path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is %s and not a directory: name a directory", shown(a.Path), kind(info))
	}
	g, err := newGlob(a.Pattern, top)
	if err != nil {
		return "", err
	}
	l := listing{most: maxEntries, skipped: skipped(c)}
	err = l.search(ctx, d, top, func(_ context.Context, e filetree.Entry) error {
		if e.Path == top || !g.match(e) {
			return nil
		}
		return l.add(entryName(e.Path, e.Info))
	})
	return l.result("nothing has such a name"), err
}

// entryName is an entry of a directory in a listing.
func entryName(name string, info fs.FileInfo) string {
	if info.IsDir() {
		return shown(name) + "/"
	}
	return shown(name)
}

// list implements the tool ls.
func list(_ context.Context, d *dir, c toolset.Call) (string, error) {
	a := struct{ Path string }{Path: "."}
	if err := parse(c, &a); err != nil {
		return "", err
	}
	name, info, err := d.find(a.Path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is %s and not a directory: use read to see a file", shown(a.Path), kind(info))
	}
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0) // a pipe is not waited for
	if err != nil {
		return "", problem(a.Path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxListed + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", problem(a.Path, err)
	}
	l := listing{most: maxEntries, skipped: skipped(c)}
	if len(names) > maxListed {
		l.notes = append(l.notes, fmt.Sprintf("the directory has more than %d entries, and these are some of them: use find", maxListed))
	}
	slices.Sort(names)
	for n, each := range names {
		if slices.Contains(l.skipped, each) {
			l.notes = append(l.notes, each+" is left out")
			continue
		}
		info, err := d.Lstat(path.Join(name, each))
		if err != nil {
			continue // it was removed meanwhile
		}
		line := entryName(each, info)
		switch {
		case info.IsDir():
		case info.Mode().IsRegular():
			line += fmt.Sprintf("  %d", info.Size())
		default:
			line += "  " + kind(info)
		}
		if l.add(line) != nil {
			l.notes = append(l.notes, fmt.Sprintf("%d more entries are left out: use find", len(names)-n))
			break
		}
	}
	return l.result("the directory is empty"), nil
}

// grep implements the tool grep.
func grep(ctx context.Context, d *dir, c toolset.Call) (string, error) {
	a := struct{ Pattern, Path, Glob string }{Path: ".", Glob: "*"}
	if err := parse(c, &a); err != nil {
		return "", err
	}
	re, err := compile(a.Pattern)
	if err != nil {
		return "", err
	}
	top, info, err := d.find(a.Path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		if err := regular(a.Path, info); err != nil {
			return "", err
		}
	}
	g, err := newGlob(a.Glob, top)
	if err != nil {
		return "", err
	}
	s := searched{re: re, in: bufio.NewReaderSize(nil, maxLine), list: listing{most: maxMatches, skipped: skipped(c)}}
	err = s.list.search(ctx, d, top, func(ctx context.Context, e filetree.Entry) error {
		if !e.Info.Mode().IsRegular() || !g.match(e) {
			return nil
		}
		if regular(e.Path, e.Info) != nil {
			s.list.unread++
			return nil
		}
		f, err := e.Open()
		if err != nil {
			s.list.unread++
			return nil
		}
		defer f.Close()
		if opened, err := f.Stat(); err != nil || regular(e.Path, opened) != nil { // another file is in its place
			s.list.unread++
			return nil
		}
		return s.file(ctx, e.Path, f, e.Info.Size())
	})
	return s.list.result("nothing matches"), err
}

// compile is the regular expression of a call.
func compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern || pattern == "" {
		return nil, fmt.Errorf("pattern has %d bytes, and must have 1 to %d: use another one", len(pattern), maxPattern)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern cannot be used: %w; put \\ in front of characters that are meant literally, RE2 has no lookaround and no backreferences", err)
	}
	if program, err := syntax.Compile(tree.Simplify()); err != nil || len(program.Inst) > maxProgram {
		return nil, errors.New("pattern repeats too much to be searched in a bounded time: use smaller numbers in {}")
	}
	return regexp.Compile(pattern)
}

// searched is a search for a regular expression.
type searched struct {
	re   *regexp.Regexp
	in   *bufio.Reader
	list listing
}

// match is where a line matches; nil: it does not, or the time is over.
func (s *searched) match(ctx context.Context, line []byte) []int {
	if len(line) <= maxPlain {
		return s.re.FindIndex(line)
	}
	at := s.re.FindReaderIndex(&runes{line: line, ended: func() bool { return ctx.Err() != nil }})
	if ctx.Err() != nil {
		return nil
	}
	return at
}

// runes reads a line until the time is over.
type runes struct {
	line  []byte
	n     int
	ended func() bool
}

// ReadRune implements [io.RuneReader].
func (r *runes) ReadRune() (rune, int, error) {
	if r.n++; len(r.line) == 0 || r.n%1024 == 0 && r.ended() {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.line)
	r.line = r.line[size:]
	return c, size, nil
}

// file searches one file.
func (s *searched) file(ctx context.Context, name string, f io.Reader, size int64) error {
	s.in.Reset(io.LimitReader(f, size))
	head, _ := s.in.Peek(sample)
	if isBinary(head) {
		return nil
	}
	if e := encodingOf(head); !e.wide() {
		_, _ = s.in.Discard(len(marks[e])) // it was peeked at
	} else {
		b, err := io.ReadAll(io.LimitReader(s.in, maxFile+1))
		if err != nil || len(b) > maxFile {
			s.list.unread++
			return nil
		}
		text, _ := e.decode(b)
		s.in.Reset(strings.NewReader(text))
	}
	for line, begin := 0, true; ; {
		if ctx.Err() != nil { // a line may take a second
			return ctx.Err()
		}
		piece, err := s.in.ReadSlice('\n')
		if begin {
			line++
		}
		begin = bytes.HasSuffix(piece, []byte("\n"))
		piece = bytes.TrimSuffix(bytes.TrimSuffix(piece, []byte("\n")), []byte("\r"))
		if at := s.match(ctx, piece); at != nil && (len(piece) > 0 || err == nil) {
			if err := s.list.add(fmt.Sprintf("%s:%d: %s", shown(name), line, around(piece, at))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			s.list.unread++
			return nil
		}
	}
}

// around is the part of a line that shows a match.
func around(line []byte, at []int) string {
	if len(line) <= maxMatch {
		return string(line)
	}
	from := max(0, min(at[0]-maxMatch/4, len(line)-maxMatch))
	return "..." + strings.ToValidUTF8(string(line[from:from+maxMatch]), "") + "..."
}
